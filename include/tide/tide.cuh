// SPDX-License-Identifier: Apache-2.0
//
// Everything of tide, with what needs nvcc, the CUDA toolkit and NCCL: include this in .cu files that run on GPUs.
//
// Test: tests/fabric/cuda_fabric.test.cu

#pragma once

#include <tide/tide.hpp>

#include <tide/fabric/cuda_cluster.cuh>
#include <tide/fabric/cuda_communicators.cuh>
#include <tide/fabric/cuda_fabric.cuh>
#include <tide/fabric/cuda_options.cuh>
#include <tide/fabric/cuda_replicas.cuh>
#include <tide/fabric/cuda_stream.cuh>
