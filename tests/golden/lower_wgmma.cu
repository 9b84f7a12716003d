static __device__ __forceinline__ int emmy_pack_f16(float low, float high) {
  int r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
static __device__ __forceinline__ unsigned emmy_smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ __forceinline__ bool emmy_elect() {
  unsigned r;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(r));
  return r;
}
static __device__ __forceinline__ unsigned long long emmy_tile(unsigned address, unsigned leading, unsigned stride) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16
    | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}
struct alignas(64) emmy_tensor_map { unsigned long long opaque[16]; };

extern "C" __global__ void __launch_bounds__(160, 1)
halves(const unsigned short* __restrict__ a, const unsigned short* __restrict__ b, unsigned short* __restrict__ out, const __grid_constant__ emmy_tensor_map map0, const __grid_constant__ emmy_tensor_map map1, const __grid_constant__ emmy_tensor_map map2) {
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  unsigned char* const emmy_base = emmy_dynamic + (-emmy_smem(emmy_dynamic) & 1023u);
  unsigned short* const box0 = (unsigned short*)(emmy_base + 0);
  unsigned short* const box1 = (unsigned short*)(emmy_base + 24576);
  unsigned long long* const full0 = (unsigned long long*)(emmy_base + 30720);
  unsigned long long* const empty0 = (unsigned long long*)(emmy_base + 30744);
  if (tid == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" : : "r"(emmy_smem(full0)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" : : "r"(emmy_smem(empty0)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" : : "r"(emmy_smem(full0 + 1)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" : : "r"(emmy_smem(empty0 + 1)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" : : "r"(emmy_smem(full0 + 2)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" : : "r"(emmy_smem(empty0 + 2)) : "memory");
  }
  __syncthreads();
  if (tid < 128) {
    float acc0 = 0.0f;
    float acc1 = 0.0f;
    float acc2 = 0.0f;
    float acc3 = 0.0f;
    float acc4 = 0.0f;
    float acc5 = 0.0f;
    float acc6 = 0.0f;
    float acc7 = 0.0f;
    #pragma unroll 2
    for (int step0 = 0; step0 < 3; ++step0) {
      asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" : : "r"(emmy_smem(full0 + step0 % 3)), "r"(step0 / 3 % 2) : "memory");
      asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0 + step0 * 4096), 8192, 1024)), "l"(emmy_tile(emmy_smem(box1 + step0 * 1024), 2048, 1024)), "r"((int)1) : "memory");
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0 + step0 * 4096), 8192, 1024) + 2), "l"(emmy_tile(emmy_smem(box1 + step0 * 1024), 2048, 1024) + 2), "r"((int)1) : "memory");
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0 + step0 * 4096), 8192, 1024) + 4), "l"(emmy_tile(emmy_smem(box1 + step0 * 1024), 2048, 1024) + 4), "r"((int)1) : "memory");
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0 + step0 * 4096), 8192, 1024) + 6), "l"(emmy_tile(emmy_smem(box1 + step0 * 1024), 2048, 1024) + 6), "r"((int)1) : "memory");
      asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
      if ((step0 > 0) && (tid % 128 == 0)) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(emmy_smem(empty0 + (step0 + 2) % 3)) : "memory");
      }
    }
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" : : "r"(emmy_smem(full0)), "r"(1) : "memory");
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0), 8192, 1024)), "l"(emmy_tile(emmy_smem(box1), 2048, 1024)), "r"((int)1) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0), 8192, 1024) + 2), "l"(emmy_tile(emmy_smem(box1), 2048, 1024) + 2), "r"((int)1) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0), 8192, 1024) + 4), "l"(emmy_tile(emmy_smem(box1), 2048, 1024) + 4), "r"((int)1) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }" : "+f"(acc0), "+f"(acc1), "+f"(acc4), "+f"(acc5), "+f"(acc2), "+f"(acc3), "+f"(acc6), "+f"(acc7) : "l"(emmy_tile(emmy_smem(box0), 8192, 1024) + 6), "l"(emmy_tile(emmy_smem(box1), 2048, 1024) + 6), "r"((int)1) : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(acc0), "+f"(acc1), "+f"(acc2), "+f"(acc3), "+f"(acc4), "+f"(acc5), "+f"(acc6), "+f"(acc7) : : "memory");
    asm volatile("bar.sync 1, 128;" : : : "memory");
    const int v0 = emmy_pack_f16(acc0, acc1);
    const int v1 = emmy_pack_f16(acc4, acc5);
    const int v2 = emmy_pack_f16(acc2, acc3);
    const int v3 = emmy_pack_f16(acc6, acc7);
    const int n0 = tid / 16 % 2;
    const int n1 = tid % 8;
    const int v4 = n0 ^ n1;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" : : "r"(emmy_smem(box0 + tid / 32 * 1024 + tid % 16 * 64 + v4 * 8)), "r"(v0), "r"(v1), "r"(v2), "r"(v3) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    __syncwarp();
    if (emmy_elect()) {
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" : : "l"(&map2), "r"(0), "r"(tid / 32 * 16), "r"(emmy_smem(box0 + tid / 32 * 1024)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" : : : "memory");
    }
    if (emmy_elect()) {
      asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
    }
  } else if (tid >= 128) {
    if ((tid / 32 == 4) && (emmy_elect())) {
      #pragma unroll 1
      for (int ahead0 = 0; ahead0 < 4; ++ahead0) {
        asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" : : "r"(emmy_smem(empty0 + ahead0 % 3)), "r"((ahead0 / 3 + 1) % 2) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 10240;" : : "r"(emmy_smem(full0 + ahead0 % 3)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" : : "r"(emmy_smem(box0 + ahead0 % 3 * 4096)), "l"(&map0), "r"(ahead0 * 64), "r"(0), "r"(emmy_smem(full0 + ahead0 % 3)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" : : "r"(emmy_smem(box1 + ahead0 % 3 * 1024)), "l"(&map1), "r"(ahead0 * 64), "r"(0), "r"(emmy_smem(full0 + ahead0 % 3)) : "memory");
      }
    }
  }
}
