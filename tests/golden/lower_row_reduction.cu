static __device__ __forceinline__ float emmy_maxf(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

extern "C" __global__ void __launch_bounds__(64)
softmax(const float* __restrict__ x, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  const float4 emmy_v1 = *((const float4*)(x + bx * 256 + tid * 4));
  const float v0 = emmy_v1.x, v1 = emmy_v1.y, v2 = emmy_v1.z, v3 = emmy_v1.w;
  const float v4 = emmy_maxf(v0, v1);
  const float v5 = emmy_maxf(v2, v3);
  const float v6 = emmy_maxf(v4, v5);
  const float v7 = __shfl_xor_sync(0xffffffffu, v6, 1);
  const float v8 = emmy_maxf(v6, v7);
  const float v9 = __shfl_xor_sync(0xffffffffu, v8, 2);
  const float v10 = emmy_maxf(v8, v9);
  const float v11 = __shfl_xor_sync(0xffffffffu, v10, 4);
  const float v12 = emmy_maxf(v10, v11);
  const float v13 = __shfl_xor_sync(0xffffffffu, v12, 8);
  const float v14 = emmy_maxf(v12, v13);
  const float v15 = __shfl_xor_sync(0xffffffffu, v14, 16);
  const float v16 = emmy_maxf(v14, v15);
  const float v17 = v0 - v16;
  const float v18 = v1 - v16;
  const float v19 = v2 - v16;
  const float v20 = v3 - v16;
  const float v21 = expf(v17);
  const float v22 = expf(v18);
  const float v23 = expf(v19);
  const float v24 = expf(v20);
  const float v25 = v21 + v22;
  const float v26 = v23 + v24;
  const float v27 = v25 + v26;
  const float v28 = __shfl_xor_sync(0xffffffffu, v27, 1);
  const float v29 = v27 + v28;
  const float v30 = __shfl_xor_sync(0xffffffffu, v29, 2);
  const float v31 = v29 + v30;
  const float v32 = __shfl_xor_sync(0xffffffffu, v31, 4);
  const float v33 = v31 + v32;
  const float v34 = __shfl_xor_sync(0xffffffffu, v33, 8);
  const float v35 = v33 + v34;
  const float v36 = __shfl_xor_sync(0xffffffffu, v35, 16);
  const float v37 = v35 + v36;
  const float v38 = v21 / v37;
  const float v39 = v22 / v37;
  const float v40 = v23 / v37;
  const float v41 = v24 / v37;
  *((float4*)(out + bx * 256 + tid * 4)) = float4{v38, v39, v40, v41};
}
