// Products of 16 x 8 by 8 x 8 numbers, by a warp on tensor cores. Each factor is passed in two parts of 11 bits,
// and the product of the two lower parts is left out: 22 of its 24 bits count.
#pragma once

// A number rounded to 11 bits; NaN if it is larger than 4e34. The instruction for it takes five times as long.
__device__ inline float upper(float number) { return __fmaf_rn(number, -8192.0f, __fmaf_rn(number, 8192.0f, number)); }

template <int COUNT> struct Factors {
    unsigned high[COUNT], low[COUNT];

    __device__ inline void set(int i, float number)
    {
        const float most = upper(number);
        high[i] = __float_as_uint(most);
        low[i] = __float_as_uint(number - most);
    }
};
// 16 rows of 8 terms. Rows lie ROW floats apart, terms TERM.
template <int ROW, int TERM> struct Rows : Factors<4> {
    __device__ inline void read(int lane, const float* from)
    {
        const float* const at = from + lane / 4 * ROW + lane % 4 * TERM;
#pragma unroll
        for (int i = 0; i < 4; i++) set(i, at[i % 2 * 8 * ROW + i / 2 * 4 * TERM]);
    }
};
// 8 columns of 8 terms.
template <int COLUMN, int TERM> struct Columns : Factors<2> {
    __device__ inline void read(int lane, const float* from)
    {
        const float* const at = from + lane / 4 * COLUMN + lane % 4 * TERM;
        set(0, at[0]);
        set(1, at[4 * TERM]);
    }
};

// 16 x 8 sums of a warp, in the order of the instruction.
struct Sums {
    float at[4];

    __device__ inline void add(const unsigned (&a)[4], const unsigned (&b)[2])
    {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(at[0]), "+f"(at[1]), "+f"(at[2]), "+f"(at[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ inline void store(int lane, float* to, int row) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) to[(lane / 4 + i / 2 * 8) * row + lane % 4 * 2 + i % 2] = at[i];
    }
};
// Adds the products of TALL x BROAD of them, DOWN and ACROSS floats apart; neighbouring instructions have other
// sums.
template <int TALL, int BROAD, int DOWN, int ACROSS, class Left, class Right> __device__ inline void multiply(
    int lane, Sums (&sums)[TALL][BROAD], const float* rows, const float* columns)
{
    Left left[TALL];
    Right right[BROAD];
#pragma unroll
    for (int i = 0; i < TALL; i++) left[i].read(lane, rows + i * DOWN);
#pragma unroll
    for (int j = 0; j < BROAD; j++) right[j].read(lane, columns + j * ACROSS);
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < BROAD; j++) sums[i][j].add(left[i].high, right[j].low);
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < BROAD; j++) sums[i][j].add(left[i].low, right[j].high);
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < BROAD; j++) sums[i][j].add(left[i].high, right[j].high);
}
