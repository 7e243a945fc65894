// Up to four arrays of pixels that are read as one, concatenated along the channels.
#pragma once

// The address of a thread's channels, and the distance between pixels.
template <class T> struct Source {
    const T* from;
    int pitch;
};

// The arrays as kernel parameters: their addresses, their pitches, and where their channels end.
#define SIDE_BY_SIDE(T) const T* a, const T* b, const T* c, const T* d_, int pitch_a, int pitch_b, int pitch_c, \
    int pitch_d, int end_a, int end_b, int end_c

#define THIS_SOURCE(T, channel) \
    ((channel) < end_a ? Source<T>{a + (channel), pitch_a} \
     : (channel) < end_b ? Source<T>{b + (channel) - end_a, pitch_b} \
     : (channel) < end_c ? Source<T>{c + (channel) - end_b, pitch_c} \
                         : Source<T>{d_ + (channel) - end_c, pitch_d})
