// Pooling of one image, and its gradients.
#pragma once
#include "images/windows.cuh"

template <class S> __device__ inline void max_pool(float* out, const float* in)
{
    EACH(i, S::C * S::OH * S::OW) out[i] = max_pool_at<S>(in, i);
    PHASE_END;
}

template <class S> __device__ inline void max_pool_back(float* out, const float* g, const float* in)
{
    if (S::SY >= S::KH && S::SX >= S::KW) {  // no two windows share a pixel
        EACH(i, S::C * S::H * S::W) out[i] = 0;
        PHASE_END;
        EACH(i, S::C * S::OH * S::OW) {
            const int corner = i / (S::OH * S::OW) * (S::H * S::W);
            const Range y = window<S::KH, S::SY, S::TOP, S::H>(i / S::OW % S::OH);
            const Range x = window<S::KW, S::SX, S::LEFT, S::W>(i % S::OW);
            out[corner + place_of_largest<S>(in + corner, y, x)] = g[i];
        }
        PHASE_END;
        return;
    }
    EACH(i, S::C * S::H * S::W) out[i] = max_pool_back_at<S>(g, in, i);
    PHASE_END;
}

template <class S> __device__ inline void average_pool(float* out, const float* in)
{
    EACH(i, S::C * S::OH * S::OW) out[i] = average_pool_at<S>(in, i);
    PHASE_END;
}

template <class S> __device__ inline void average_pool_back(float* out, const float* g)
{
    EACH(i, S::C * S::H * S::W) out[i] = average_pool_back_at<S>(g, i);
    PHASE_END;
}

template <class S> __device__ inline void subsample(float* out, const float* in, const float* w, const float* b)
{
    EACH(i, S::C * S::OH * S::OW) out[i] = subsample_at<S>(in, w, b, i);
    PHASE_END;
}
