// Convolutions of one image, and their gradients.
#pragma once

#include "images/shapes.cuh"

// A thread has up to FB filters and PX pixels of a row, and one of PARTS parts of the channels. PX is
// odd, so that the threads of a warp read from different banks of shared memory.
template <class S, int FB, int PX, int PARTS> __device__ inline void conv(
    float* out, const float* in, const float* w, float* room)
{
    constexpr int SIZE = S::M * S::F * S::OH * S::OW;
    float* to = PARTS == 1 ? out : room;
    constexpr int BLOCKS = (S::FG + FB - 1) / FB, COLUMNS = (S::OW + PX - 1) / PX;
    constexpr int SPAN = (PX - 1) * S::SX + (S::KW - 1) * S::DX + 1;
    EACH(i, PARTS * S::M * S::GROUPS * BLOCKS * S::OH * COLUMNS) {
        int rest = i;
        const int column = rest % COLUMNS * PX;
        rest /= COLUMNS;
        const int row = rest % S::OH;
        rest /= S::OH;
        const int group = rest / BLOCKS % S::GROUPS, m = rest / BLOCKS / S::GROUPS % S::M;
        const int first = group * S::FG + rest % BLOCKS * FB, end = (group + 1) * S::FG;
        const int part = rest / BLOCKS / S::GROUPS / S::M;
        float sum[FB][PX] = {};
        for (int c = S::CG * part / PARTS; c < S::CG * (part + 1) / PARTS; c++)
            for (int ky = 0; ky < S::KH; ky++) {
                const int y = row * S::SY - S::TOP + ky * S::DY, x0 = column * S::SX - S::LEFT;
                if ((unsigned)y >= S::H) continue;
                const float* line = in + ((m * S::C + group * S::CG + c) * S::H + y) * S::W;
                float x[SPAN];
#pragma unroll
                for (int s = 0; s < SPAN; s++) x[s] = (unsigned)(x0 + s) < S::W ? line[x0 + s] : 0;
#pragma unroll
                for (int b = 0; b < FB; b++)
                    if (S::FG % FB == 0 || first + b < end) {
                        const float* taps = w + ((first + b) * S::CG + c) * S::TAPS + ky * S::KW;
#pragma unroll
                        for (int kx = 0; kx < S::KW; kx++) {
                            const float a = taps[kx];
#pragma unroll
                            for (int p = 0; p < PX; p++) sum[b][p] += a * x[p * S::SX + kx * S::DX];
                        }
                    }
            }
#pragma unroll
        for (int b = 0; b < FB; b++)
#pragma unroll
            for (int p = 0; p < PX; p++)
                if (first + b < end && column + p < S::OW)
                    to[part * SIZE + ((m * S::F + first + b) * S::OH + row) * S::OW + column + p] = sum[b][p];
    }
    PHASE_END;
    add_parts<SIZE, PARTS>(out, room);
}

// The gradient of the images. A thread has up to CB channels and PX pixels of a row, and one of PARTS
// parts of the filters.
template <class S, int CB, int PX, int PARTS> __device__ inline void conv_back(
    float* out, const float* g, const float* w, float* room)
{
    constexpr int SIZE = S::M * S::C * S::H * S::W;
    float* to = PARTS == 1 ? out : room;
    constexpr int BLOCKS = (S::CG + CB - 1) / CB, COLUMNS = (S::W + PX - 1) / PX;
    constexpr int SPAN = PX - 1 + (S::KW - 1) * S::DX + 1;
    EACH(i, PARTS * S::M * S::GROUPS * BLOCKS * S::H * COLUMNS) {
        int rest = i;
        const int column = rest % COLUMNS * PX;
        rest /= COLUMNS;
        const int row = rest % S::H;
        rest /= S::H;
        const int group = rest / BLOCKS % S::GROUPS, m = rest / BLOCKS / S::GROUPS % S::M;
        const int first = rest % BLOCKS * CB;  // in its group
        const int part = rest / BLOCKS / S::GROUPS / S::M;
        float sum[CB][PX] = {};
        for (int f = group * S::FG + S::FG * part / PARTS; f < group * S::FG + S::FG * (part + 1) / PARTS; f++)
            for (int ky = 0; ky < S::KH; ky++) {
                const int from = row + S::TOP - ky * S::DY;
                if (from < 0 || from % S::SY || from / S::SY >= S::OH) continue;
                const float* line = g + ((m * S::F + f) * S::OH + from / S::SY) * S::OW;
                float x[SPAN];
                const int x0 = column + S::LEFT - (S::KW - 1) * S::DX;
#pragma unroll
                for (int s = 0; s < SPAN; s++) {
                    const int at = x0 + s;
                    const bool inside = at >= 0 && at % S::SX == 0 && at / S::SX < S::OW;
                    x[s] = inside ? line[at / S::SX] : 0;
                }
#pragma unroll
                for (int b = 0; b < CB; b++)
                    if (S::CG % CB == 0 || first + b < S::CG) {
                        const float* taps = w + (f * S::CG + first + b) * S::TAPS + ky * S::KW;
#pragma unroll
                        for (int kx = 0; kx < S::KW; kx++) {
                            const float a = taps[kx];
#pragma unroll
                            for (int p = 0; p < PX; p++) sum[b][p] += a * x[p + (S::KW - 1 - kx) * S::DX];
                        }
                    }
            }
#pragma unroll
        for (int b = 0; b < CB; b++)
#pragma unroll
            for (int p = 0; p < PX; p++)
                if (first + b < S::CG && column + p < S::W)
                    to[part * SIZE + ((m * S::C + group * S::CG + first + b) * S::H + row) * S::W + column + p] = sum[b][p];
    }
    PHASE_END;
    add_parts<SIZE, PARTS>(out, room);
}

// This image's part of the gradient of the filters. A thread has a row of taps of one filter and
// channel, and some rows of the image: one of PARTS parts, which are added in `room` if there are
// several.
template <class S, int PARTS> __device__ inline void conv_filters_back(
    float* out, const float* in, const float* g, float* room)
{
    constexpr int PX = 4, COUNT = S::F * S::CG * S::KH, SIZE = COUNT * S::KW;
    constexpr int SPAN = (PX - 1) * S::SX + (S::KW - 1) * S::DX + 1;
    float* to = PARTS == 1 ? out : room;
    EACH(i, COUNT * PARTS) {
        const int ky = i % S::KH, c = i / S::KH % S::CG, f = i / S::KH / S::CG % S::F, part = i / COUNT;
        const int channel = f / S::FG * S::CG + c;
        const int start = S::OH * part / PARTS, end = S::OH * (part + 1) / PARTS;
        float sum[S::KW] = {};
        for (int m = 0; m < S::M; m++)
            for (int row = start; row < end; row++) {
                const int y = row * S::SY - S::TOP + ky * S::DY;
                if ((unsigned)y >= S::H) continue;
                const float* line = in + ((m * S::C + channel) * S::H + y) * S::W;
                const float* errors = g + ((m * S::F + f) * S::OH + row) * S::OW;
                for (int column = 0; column < S::OW; column += PX) {
                    const int x0 = column * S::SX - S::LEFT;
                    float x[SPAN], d[PX];
#pragma unroll
                    for (int p = 0; p < PX; p++) d[p] = column + p < S::OW ? errors[column + p] : 0;
#pragma unroll
                    for (int s = 0; s < SPAN; s++) x[s] = (unsigned)(x0 + s) < S::W ? line[x0 + s] : 0;
#pragma unroll
                    for (int p = 0; p < PX; p++)
#pragma unroll
                        for (int kx = 0; kx < S::KW; kx++) sum[kx] += d[p] * x[p * S::SX + kx * S::DX];
                }
            }
#pragma unroll
        for (int kx = 0; kx < S::KW; kx++)
            to[part * SIZE + ((f * S::CG + c) * S::KH + ky) * S::KW + kx] = sum[kx];
    }
    PHASE_END;
    add_parts<SIZE, PARTS>(out, room);
}
