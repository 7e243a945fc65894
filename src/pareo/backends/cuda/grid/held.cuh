// The elements that a thread has of a row or a column: read once, and held in registers where it has few.
#pragma once

const int MOST_HELD = 8;
const int MOST_READ = 24;  // again, from the first-level cache: more are copied to shared memory

// COUNT elements of a thread, every EACH-th one from `first` on, at places that `at` finds; those beyond
// `stop` are 0.
template <int COUNT, int EACH> struct Held {
    float value[COUNT];
    template <class At> __device__ inline Held(int first, int stop, At at)
    {
#pragma unroll
        for (int k = 0; k < COUNT; k++) value[k] = first + k * EACH < stop ? at(first + k * EACH) : 0;
    }
    template <class Each> __device__ inline void over(int first, int stop, Each each) const
    {
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            if (first + k * EACH < stop) each(first + k * EACH, value[k], k);
    }
    template <class Each> __device__ inline void at_last(int first, int stop, Each each) const { over(first, stop, each); }
};
// The same, where a thread has many: they are read each time.
template <class At> struct Read {
    At at;
    int each;
    template <class Each> __device__ inline void over(int first, int stop, Each act) const
    {
#pragma unroll 4
        for (int e = first; e < stop; e += each) act(e, at(e), e);
    }
    template <class Each> __device__ inline void at_last(int first, int stop, Each act) const { over(first, stop, act); }
};
template <int COUNT, int EACH, class At> __device__ inline auto held(int first, int stop, At at)
{
    if constexpr (COUNT <= MOST_HELD) return Held<COUNT, EACH>(first, stop, at);
    else return Read<At>{at, EACH};
}
template <int COUNT, int EACH> __device__ inline float of(const Held<COUNT, EACH>& held, int k) { return held.value[k]; }
template <class At> __device__ inline float of(const Read<At>& read, int e) { return read.at(e); }

// The same of an array, where a thread has so many that they are copied to shared memory, if there is room: behind
// what the sums of a block need, as number SLOT of SLOTS arrays. `make` finds an element from what is copied.
template <int COUNT, int EACH, class Make> struct Kept {
    const float* mine;
    Make make;
    template <class Each> __device__ inline void over(int first, int stop, Each act) const
    {
#pragma unroll 4
        for (int k = 0; k < COUNT; k++)
            if (first + k * EACH < stop) act(first + k * EACH, make(mine[k * THREADS]), k);
    }
    // The same with an act of much code, which is there twice.
    template <class Each> __device__ inline void at_last(int first, int stop, Each act) const
    {
#pragma unroll 2
        for (int k = 0; k < COUNT; k++)
            if (first + k * EACH < stop) act(first + k * EACH, make(mine[k * THREADS]), k);
    }
};
template <int COUNT, int EACH, class Make> __device__ inline float of(const Kept<COUNT, EACH, Make>& kept, int k)
{
    return kept.make(kept.mine[k * THREADS]);
}
// Nothing else uses shared memory yet; what is copied arrives with `wait_for_copies`.
template <int COUNT, int EACH, int SLOT, int SLOTS, class Place, class Make> __device__ inline auto kept(
    float* room, int first, int stop, const float* from, Place place, Make make)
{
    if constexpr (COUNT > MOST_READ && (2 + SLOTS * COUNT) * THREADS <= ROOM) {
        float* const mine = room + (2 + SLOT * COUNT) * THREADS + this_thread();
#pragma unroll 2
        for (int k = 0; k < COUNT; k++)
            if (first + k * EACH < stop) copy_later(mine + k * THREADS, from + place(first + k * EACH), true);
        return Kept<COUNT, EACH, Make>{mine, make};
    } else
        return held<COUNT, EACH>(first, stop, [=](int e) { return make(from[place(e)]); });
}
