static __device__ __forceinline__ unsigned short emmy_f32_to_f16(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
static __device__ __forceinline__ unsigned emmy_smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void __launch_bounds__(64)
halves(const unsigned short* __restrict__ a, const unsigned short* __restrict__ b, unsigned short* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  unsigned short* const s0 = (unsigned short*)(emmy_dynamic + 0);
  unsigned short* const s1 = (unsigned short*)(emmy_dynamic + 4608);
  float acc0 = 0.0f;
  float acc1 = 0.0f;
  float acc2 = 0.0f;
  float acc3 = 0.0f;
  float acc4 = 0.0f;
  float acc5 = 0.0f;
  float acc6 = 0.0f;
  float acc7 = 0.0f;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(emmy_smem(s0 + tid / 2 * 24 + tid % 2 * 8)), "l"(a + bx / 2 * 2048 + tid / 2 * 64 + tid % 2 * 8) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" : : "r"(emmy_smem(s1 + tid / 4 * 24 + tid % 4 * 4)), "l"(b + tid / 4 * 32 + bx % 2 * 16 + tid % 4 * 4) : "memory");
  asm volatile("cp.async.commit_group;" : : : "memory");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(emmy_smem(s0 + tid / 2 * 24 + tid % 2 * 8 + 768)), "l"(a + bx / 2 * 2048 + tid / 2 * 64 + tid % 2 * 8 + 16) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" : : "r"(emmy_smem(s1 + tid / 4 * 24 + tid % 4 * 4 + 384)), "l"(b + tid / 4 * 32 + bx % 2 * 16 + tid % 4 * 4 + 512) : "memory");
  asm volatile("cp.async.commit_group;" : : : "memory");
  #pragma unroll 1
  for (int step0 = 0; step0 < 4; ++step0) {
    asm volatile("cp.async.wait_group 1;" : : : "memory");
    __syncthreads();
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(emmy_smem(s0 + (step0 + 2) % 3 * 768 + tid / 2 * 24 + tid % 2 * 8)), "l"(step0 * 16 + 32 < 64 ? a + bx / 2 * 2048 + tid / 2 * 64 + step0 * 16 + tid % 2 * 8 + 32 : a), "r"(step0 * 16 + 32 < 64 ? 16 : 0) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" : : "r"(emmy_smem(s1 + (step0 + 2) % 3 * 384 + tid / 4 * 24 + tid % 4 * 4)), "l"(step0 * 16 + 32 < 64 ? b + step0 * 512 + tid / 4 * 32 + bx % 2 * 16 + tid % 4 * 4 + 1024 : b), "r"(step0 * 16 + 32 < 64 ? 8 : 0) : "memory");
    asm volatile("cp.async.commit_group;" : : : "memory");
    int f0, f1, f2, f3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(f0), "=r"(f1), "=r"(f2), "=r"(f3) : "r"(emmy_smem(s0 + step0 % 3 * 768 + tid / 32 * 384 + tid / 8 % 2 * 192 + tid % 8 * 24 + tid / 16 % 2 * 8)) : "memory");
    int f4, f5, f6, f7;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(f4), "=r"(f5), "=r"(f6), "=r"(f7) : "r"(emmy_smem(s1 + step0 % 3 * 384 + tid / 8 % 2 * 192 + tid % 8 * 24 + tid / 16 % 2 * 8)) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5) : "r"(f0), "r"(f1), "r"(f2), "r"(f3), "r"(f4), "r"(f5));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "r"(f0), "r"(f1), "r"(f2), "r"(f3), "r"(f6), "r"(f7));
  }
  asm volatile("cp.async.wait_group 0;" : : : "memory");
  const unsigned short v0 = emmy_f32_to_f16(acc0);
  const unsigned short v1 = emmy_f32_to_f16(acc1);
  const unsigned short v2 = emmy_f32_to_f16(acc2);
  const unsigned short v3 = emmy_f32_to_f16(acc3);
  const unsigned short v4 = emmy_f32_to_f16(acc4);
  const unsigned short v5 = emmy_f32_to_f16(acc5);
  const unsigned short v6 = emmy_f32_to_f16(acc6);
  const unsigned short v7 = emmy_f32_to_f16(acc7);
  *((ushort2*)(out + bx / 2 * 1024 + tid / 32 * 512 + tid / 4 % 8 * 32 + bx % 2 * 16 + tid % 4 * 2)) = ushort2{v0, v1};
  *((ushort2*)(out + bx / 2 * 1024 + tid / 32 * 512 + tid / 4 % 8 * 32 + bx % 2 * 16 + tid % 4 * 2 + 8)) = ushort2{v2, v3};
  *((ushort2*)(out + bx / 2 * 1024 + tid / 32 * 512 + tid / 4 % 8 * 32 + bx % 2 * 16 + tid % 4 * 2 + 256)) = ushort2{v4, v5};
  *((ushort2*)(out + bx / 2 * 1024 + tid / 32 * 512 + tid / 4 % 8 * 32 + bx % 2 * 16 + tid % 4 * 2 + 264)) = ushort2{v6, v7};
}
