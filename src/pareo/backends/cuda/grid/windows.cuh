// The operands of convolutions, as products.cuh reads them. S has the sizes (images/shapes.cuh). To read what
// is outside at some other place, without a branch, takes 1.4 times as long.
#pragma once

struct Window { int start, y, x; };

template <class S> struct Pixels {  // of images, inside of them or 0
    const float* at;
    using Place = Window;
    __device__ float get(const Window& place, const Window& key) const
    {
        const int y = place.y + key.y, x = place.x + key.x;
        const bool inside = (unsigned)y < S::H && (unsigned)x < S::W;
        return inside ? at[place.start + key.start + y * S::W + x] : 0;
    }
    // The first pixel of a result's window, and a tap of a channel.
    __device__ static Window window(int n)
    {
        const int image = n / (S::OH * S::OW), pixel = n % (S::OH * S::OW);
        return {image * S::C * S::H * S::W, pixel / S::OW * S::SY, pixel % S::OW * S::SX};
    }
    __device__ static Window tap(int k)
    {
        const int c = k / S::TAPS, tap = k % S::TAPS;
        return {c * S::H * S::W, tap / S::KW * S::DY - S::TOP, tap % S::KW * S::DX - S::LEFT};
    }
};
template <class S> struct ByResult : Pixels<S> {  // columns are results
    static const bool BY_TERM = false;
    __device__ Window place(int n) const { return Pixels<S>::window(n); }
    __device__ Window key(int k) const { return Pixels<S>::tap(k); }
};
template <class S> struct ByTap : Pixels<S> {  // columns are taps
    static const bool BY_TERM = true;
    __device__ Window place(int n) const { return Pixels<S>::tap(n); }
    __device__ Window key(int k) const { return Pixels<S>::window(k); }
};

template <class S> struct Errors {  // of the results that a pixel is part of
    static const bool BY_TERM = false;
    const float* at;
    using Place = Window;
    __device__ Window place(int n) const
    {
        const int image = n / (S::H * S::W), pixel = n % (S::H * S::W);
        return {image * S::F * S::OH * S::OW, pixel / S::W + S::TOP, pixel % S::W + S::LEFT};
    }
    __device__ Window key(int k) const
    {
        const int f = k / S::TAPS, tap = k % S::TAPS;
        return {f * S::OH * S::OW, tap / S::KW * S::DY, tap % S::KW * S::DX};
    }
    __device__ float get(const Window& place, const Window& key) const
    {
        const int y = place.y - key.y, x = place.x - key.x;
        const bool inside = y >= 0 && x >= 0 && y % S::SY == 0 && x % S::SX == 0 && y / S::SY < S::OH && x / S::SX < S::OW;
        return inside ? at[place.start + key.start + y / S::SY * S::OW + x / S::SX] : 0;
    }
};
template <class S> struct FiltersBack {  // rows are channels, terms filters and taps
    static const bool BY_TERM = S::TAPS > 1;
    const float* at;
    using Place = int;
    __device__ int place(int c) const { return c * S::TAPS; }
    __device__ int key(int k) const { return k / S::TAPS * (S::CG * S::TAPS) + k % S::TAPS; }
    __device__ float get(int place, int key) const { return at[place + key]; }
};
template <class S> struct ErrorsOfFilters {  // rows are filters, terms results
    static const bool BY_TERM = true;
    const float* at;
    using Place = int;
    __device__ int place(int f) const { return f * (S::OH * S::OW); }
    __device__ int key(int k) const { return k / (S::OH * S::OW) * (S::F * S::OH * S::OW) + k % (S::OH * S::OW); }
    __device__ float get(int place, int key) const { return at[place + key]; }
};
