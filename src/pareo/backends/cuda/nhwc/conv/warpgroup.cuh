// Shared by the kernels that use Hopper's warpgroup products (wgmma, sm_90a): barriers in shared
// memory, the products themselves, and how (tile, chunk) pairs are split among blocks.
#pragma once

const int CHUNK = 32;  // positions: a line of 128 bytes

// Rounds to tf32; infinities and NaN stay.
__device__ inline unsigned rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// The same in one instruction instead of three, for inner loops: products ignore the last 13 bits,
// so half of their unit is added. CUDA's own NaN, with all bits set, becomes -0, so the other
// factor of the product must preserve a NaN.
__device__ inline unsigned quickly_rounded(float value) { return __float_as_uint(value) + 0x1000; }

// How (tile, chunk) pairs are split among blocks: evenly, in order.
struct WorkSplit {
    int chunks, total, per_block;
    __device__ WorkSplit(int tiles, int chunks, int blocks)
        : chunks(chunks), total(tiles * chunks), per_block((tiles * chunks + blocks - 1) / blocks) {}
    __device__ int first_block(int tile) const { return tile * chunks / per_block; }
    __device__ int last_block(int tile) const { return ((tile + 1) * chunks - 1) / per_block; }
};

// The sum of the first part of four numbers and the `more` parts after it, `count` apart, in order.
__device__ inline float4 summed(const float4* partial, int i, int count, int more)
{
    float4 sum = partial[i];
    for (int part = 1; part <= more; part++) {
        const float4 next = partial[(long long)part * count + i];
        sum.x += next.x;
        sum.y += next.y;
        sum.z += next.z;
        sum.w += next.w;
    }
    return sum;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline unsigned place(const void* shared) { return __cvta_generic_to_shared(shared); }

__device__ inline void wait(unsigned long long* barrier, int phase)
{
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" :: "r"(place(barrier)), "r"(phase) : "memory");
}

__device__ inline void arrive(unsigned long long* barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place(barrier)) : "memory");
}

// The first thread of a warp arrives for all of them. Compute-sanitizer's racecheck takes only the
// arriving thread as synchronised, so for it every thread arrives.
#ifdef EVERY_THREAD_ARRIVES
const int ARRIVALS = 128;  // of a warpgroup
__device__ inline void warp_arrives(unsigned long long* barrier, int lane) { arrive(barrier); }
#else
const int ARRIVALS = 4;
__device__ inline void warp_arrives(unsigned long long* barrier, int lane)
{
    if (lane == 0) arrive(barrier);
}
#endif

#define EIGHT(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), \
    "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define FIRST_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NEXT_16 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LAST_16 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ALWAYS "{\n.reg .pred yes;\nsetp.eq.u32 yes, 0, 0;\nwgmma.mma_async.sync.aligned."
#define GIVEN(a, b) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

// sums += a * b, for 64 rows, N columns and eight positions.
template <int N> __device__ inline void multiply(
    float (&s)[N / 2], const unsigned (&a)[4], unsigned long long b);

template <> __device__ inline void multiply<64>(
    float (&s)[32], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile(ALWAYS "m64n64k8.f32.tf32.tf32 " FIRST_32
                 "}, {%32, %33, %34, %35}, %36, yes, 1, 1;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24) : GIVEN(a, b));
}

template <> __device__ inline void multiply<96>(
    float (&s)[48], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile(ALWAYS "m64n96k8.f32.tf32.tf32 " FIRST_32 NEXT_16
                 "}, {%48, %49, %50, %51}, %52, yes, 1, 1;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24), EIGHT(s, 32), EIGHT(s, 40)
                 : GIVEN(a, b));
}

template <> __device__ inline void multiply<128>(
    float (&s)[64], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile(ALWAYS "m64n128k8.f32.tf32.tf32 " FIRST_32 NEXT_16 LAST_16
                 "}, {%64, %65, %66, %67}, %68, yes, 1, 1;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24), EIGHT(s, 32), EIGHT(s, 40),
                   EIGHT(s, 48), EIGHT(s, 56)
                 : GIVEN(a, b));
}

// The same for 16 positions in bfloat16, with both factors in shared memory.
template <int N> __device__ inline void multiply_bfloat16(
    float (&s)[N / 2], unsigned long long a, unsigned long long b);

template <> __device__ inline void multiply_bfloat16<64>(
    float (&s)[32], unsigned long long a, unsigned long long b)
{
    asm volatile(ALWAYS "m64n64k16.f32.bf16.bf16 " FIRST_32 "}, %32, %33, yes, 1, 1, 0, 0;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24) : "l"(a), "l"(b));
}

template <> __device__ inline void multiply_bfloat16<128>(
    float (&s)[64], unsigned long long a, unsigned long long b)
{
    asm volatile(ALWAYS "m64n128k16.f32.bf16.bf16 " FIRST_32 NEXT_16 LAST_16
                 "}, %64, %65, yes, 1, 1, 0, 0;\n}"
                 : EIGHT(s, 0), EIGHT(s, 8), EIGHT(s, 16), EIGHT(s, 24), EIGHT(s, 32), EIGHT(s, 40),
                   EIGHT(s, 48), EIGHT(s, 56)
                 : "l"(a), "l"(b));
}

// The wgmma descriptor of swizzled lines of 128 bytes, in groups of eight that are 1024 bytes
// apart.
__device__ inline unsigned long long lines_at(const void* shared)
{
    const unsigned long long start = (place(shared) & 0x3FFFF) >> 4;
    return start | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Starts a bulk copy to shared memory; `ready` is notified when all of it has arrived.
__device__ inline void bulk_copy(void* to, const void* from, int bytes, unsigned long long* ready)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(place(ready)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(place(to)), "l"(from), "r"(bytes), "r"(place(ready)) : "memory");
}

// Starts copying 16 bytes to shared memory, or zeros.
__device__ inline void load_async(void* to, const void* from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(place(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// `ready` is notified when the copies that this thread started have arrived.
__device__ inline void arrive_when_loaded(unsigned long long* ready)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(place(ready)) : "memory");
}

#endif
