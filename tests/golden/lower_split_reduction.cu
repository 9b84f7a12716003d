extern "C" __global__ void __launch_bounds__(32)
full_sum(const float* __restrict__ x, float* __restrict__ out, float* __restrict__ partial0, int* __restrict__ arrived0) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  int* const last0 = (int*)(emmy_dynamic + 0);
  float acc0 = 0.0f;
  #pragma unroll 1
  for (int step0 = 0; step0 < 4; ++step0) {
    const float4 emmy_v1 = *((const float4*)(x + bx * 512 + step0 * 128 + tid * 4));
    const float v0 = emmy_v1.x, v1 = emmy_v1.y, v2 = emmy_v1.z, v3 = emmy_v1.w;
    const float v4 = v0 + v1;
    const float v5 = v2 + v3;
    const float v6 = v4 + v5;
    const float v7 = acc0 + v6;
    acc0 = v7;
  }
  const float v8 = __shfl_xor_sync(0xffffffffu, acc0, 1);
  const float v9 = acc0 + v8;
  const float v10 = __shfl_xor_sync(0xffffffffu, v9, 2);
  const float v11 = v9 + v10;
  const float v12 = __shfl_xor_sync(0xffffffffu, v11, 4);
  const float v13 = v11 + v12;
  const float v14 = __shfl_xor_sync(0xffffffffu, v13, 8);
  const float v15 = v13 + v14;
  const float v16 = __shfl_xor_sync(0xffffffffu, v15, 16);
  const float v17 = v15 + v16;
  if (tid == 0) partial0[bx] = v17;
  __threadfence();
  __syncthreads();
  int v18 = 0;
  if (tid == 0) v18 = (int)atomicAdd((unsigned*)(arrived0), (unsigned)1);
  if (tid == 0) last0[0] = v18;
  __syncthreads();
  const int v19 = last0[0];
  const bool v20 = v19 != 7;
  if (v20) {
    return;
  }
  if (tid == 0) arrived0[0] = 0;
  __threadfence();
  const float v21 = tid < 8 ? __ldcg(partial0 + tid) : 0.0f;
  const float v22 = __shfl_xor_sync(0xffffffffu, v21, 1);
  const float v23 = v21 + v22;
  const float v24 = __shfl_xor_sync(0xffffffffu, v23, 2);
  const float v25 = v23 + v24;
  const float v26 = __shfl_xor_sync(0xffffffffu, v25, 4);
  const float v27 = v25 + v26;
  const float v28 = __shfl_xor_sync(0xffffffffu, v27, 8);
  const float v29 = v27 + v28;
  const float v30 = __shfl_xor_sync(0xffffffffu, v29, 16);
  const float v31 = v29 + v30;
  if (tid == 0) out[0] = v31;
}
