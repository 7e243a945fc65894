// The elements that a thread has of a row or a column: read once, and held in registers where it has few.
#pragma once

const int MOST_HELD = 8;

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
};
template <int COUNT, int EACH, class At> __device__ inline auto held(int first, int stop, At at)
{
    if constexpr (COUNT <= MOST_HELD) return Held<COUNT, EACH>(first, stop, at);
    else return Read<At>{at, EACH};
}
template <int COUNT, int EACH> __device__ inline float of(const Held<COUNT, EACH>& held, int k) { return held.value[k]; }
template <class At> __device__ inline float of(const Read<At>& read, int e) { return read.at(e); }
