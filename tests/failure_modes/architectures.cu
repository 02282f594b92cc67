// SPDX-License-Identifier: Apache-2.0
//
// Compiled down to machine code for GPUs before and after the one that tide is tuned for: whatever a kernel uses that
// an architecture lacks must have another body there.

#include <tide/fabric/detail/cuda_bulk_copy.cuh>
#include <tide/fabric/detail/cuda_bulk_sum.cuh>

namespace tide::detail {

template KernelCode cuda_kernel<Kernel::Kind::cast, Element::bf16, Finish::store>();
template KernelCode cuda_kernel<Kernel::Kind::cast, Element::f8_e4m3, Finish::store>();
template KernelCode cuda_kernel<Kernel::Kind::sum, Element::bf16, Finish::store>();
template KernelCode cuda_kernel<Kernel::Kind::sum, Element::f32, Finish::accumulate>();
template __global__ void bulk_copy_kernel<CopyRing>(CudaLaunch);

}  // namespace tide::detail
