static __device__ __forceinline__ float emmy_maxf(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

extern "C" __global__ void __launch_bounds__(64)
attention(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  float* const s0 = (float*)(emmy_dynamic + 0);
  float* const s1 = (float*)(emmy_dynamic + 1152);
  float* const s2 = (float*)(emmy_dynamic + 1728);
  float* const s3 = (float*)(emmy_dynamic + 2016);
  float acc0 = __int_as_float(0xff800000);
  float acc1 = __int_as_float(0xff800000);
  float acc2 = 0.0f;
  float acc3 = 0.0f;
  float acc4 = 0.0f;
  float acc5 = 0.0f;
  const float4 emmy_v1 = *((const float4*)(q + bx / 2 * 256 + tid * 4));
  const float v0 = emmy_v1.x, v1 = emmy_v1.y, v2 = emmy_v1.z, v3 = emmy_v1.w;
  s0[tid % 4 * 72 + tid / 4] = v0;
  s0[tid % 4 * 72 + tid / 4 + 18] = v1;
  s0[tid % 4 * 72 + tid / 4 + 36] = v2;
  s0[tid % 4 * 72 + tid / 4 + 54] = v3;
  #pragma unroll 1
  for (int step0 = 0; step0 < 4; ++step0) {
    float acc6 = 0.0f;
    float acc7 = 0.0f;
    const float2 emmy_v2 = *((const float2*)(k + step0 * 128 + tid * 2));
    const float v4 = emmy_v2.x, v5 = emmy_v2.y;
    s1[tid % 8 * 18 + tid / 8] = v4;
    s1[tid % 8 * 18 + tid / 8 + 9] = v5;
    __syncthreads();
    #pragma unroll
    for (int k0 = 0; k0 < 16; ++k0) {
      const float2 emmy_v3 = *((const float2*)(s0 + k0 * 18 + tid / 8 * 2));
      const float v6 = emmy_v3.x, v7 = emmy_v3.y;
      const float v8 = s1[k0 * 9 + tid % 8];
      acc6 = fmaf(v6, v8, acc6);
      acc7 = fmaf(v7, v8, acc7);
    }
    const float v9 = acc6 * 0.125f;
    const float v10 = acc7 * 0.125f;
    const float v11 = __shfl_xor_sync(0xffffffffu, v9, 1);
    const float v12 = __shfl_xor_sync(0xffffffffu, v10, 1);
    const float v13 = emmy_maxf(v9, v11);
    const float v14 = emmy_maxf(v10, v12);
    const float v15 = __shfl_xor_sync(0xffffffffu, v13, 2);
    const float v16 = __shfl_xor_sync(0xffffffffu, v14, 2);
    const float v17 = emmy_maxf(v13, v15);
    const float v18 = emmy_maxf(v14, v16);
    const float v19 = __shfl_xor_sync(0xffffffffu, v17, 4);
    const float v20 = __shfl_xor_sync(0xffffffffu, v18, 4);
    const float v21 = emmy_maxf(v17, v19);
    const float v22 = emmy_maxf(v18, v20);
    const float v23 = emmy_maxf(acc0, v21);
    const float v24 = emmy_maxf(acc1, v22);
    const float v25 = acc0 - v23;
    const float v26 = acc1 - v24;
    const float v27 = expf(v25);
    const float v28 = expf(v26);
    const bool v29 = acc0 == __int_as_float(0xff800000);
    const bool v30 = acc1 == __int_as_float(0xff800000);
    const float v31 = v29 ? 0.0f : v27;
    const float v32 = v30 ? 0.0f : v28;
    const bool v33 = v23 == __int_as_float(0xff800000);
    const bool v34 = v24 == __int_as_float(0xff800000);
    const float v35 = v33 ? 1.0f : v23;
    const float v36 = v34 ? 1.0f : v24;
    const float v37 = v9 - v35;
    const float v38 = v10 - v36;
    const float v39 = expf(v37);
    const float v40 = expf(v38);
    const float v41 = acc4 * v31;
    const float v42 = acc5 * v32;
    const float v43 = v41 + v39;
    const float v44 = v42 + v40;
    acc4 = v43;
    acc5 = v44;
    acc0 = v23;
    acc1 = v24;
    acc2 = acc2 * v31;
    acc3 = acc3 * v32;
    const float v45 = v[step0 * 128 + tid / 8 * 16 + bx % 2 * 8 + tid % 8];
    s2[tid / 8 * 9 + tid % 8] = v45;
    *((float2*)(s3 + tid % 8 * 18 + tid / 8 * 2)) = float2{v39, v40};
    __syncthreads();
    #pragma unroll
    for (int k1 = 0; k1 < 8; ++k1) {
      const float v46 = s2[k1 * 9 + tid % 8];
      const float2 emmy_v4 = *((const float2*)(s3 + k1 * 18 + tid / 8 * 2));
      const float v47 = emmy_v4.x, v48 = emmy_v4.y;
      acc2 = fmaf(v47, v46, acc2);
      acc3 = fmaf(v48, v46, acc3);
    }
  }
  const float v49 = __shfl_xor_sync(0xffffffffu, acc4, 1);
  const float v50 = __shfl_xor_sync(0xffffffffu, acc5, 1);
  const float v51 = acc4 + v49;
  const float v52 = acc5 + v50;
  const float v53 = __shfl_xor_sync(0xffffffffu, v51, 2);
  const float v54 = __shfl_xor_sync(0xffffffffu, v52, 2);
  const float v55 = v51 + v53;
  const float v56 = v52 + v54;
  const float v57 = __shfl_xor_sync(0xffffffffu, v55, 4);
  const float v58 = __shfl_xor_sync(0xffffffffu, v56, 4);
  const float v59 = v55 + v57;
  const float v60 = v56 + v58;
  const float v61 = acc2 / v59;
  const float v62 = acc3 / v60;
  out[bx / 2 * 256 + tid / 8 * 32 + bx % 2 * 8 + tid % 8] = v61;
  out[bx / 2 * 256 + tid / 8 * 32 + bx % 2 * 8 + tid % 8 + 16] = v62;
}
