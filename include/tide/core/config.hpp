// SPDX-License-Identifier: Apache-2.0
//
// What the compiler at hand can do, as the few macros that the other headers use. Nothing outside this file and the
// `detail/` folders asks which compiler or architecture it is.
//
// Test: tests/core/config.test.cpp

#pragma once

#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#error "tide: C++20 is required; compile with -std=c++20 (for CUDA sources too: nvcc -std=c++20)."
#endif

/// A function that host and device code may call. Expands to nothing where no device compiler is at work.
#if defined(__CUDACC__)
#define TIDE_HOST_DEVICE __host__ __device__
#else
#define TIDE_HOST_DEVICE
#endif

/// Whether errors are thrown (`tide::Error`) or handed to the error handler; see core/error.hpp.
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define TIDE_HAS_EXCEPTIONS 1
#else
#define TIDE_HAS_EXCEPTIONS 0
#endif

/// Keeps a symbol inside the library that instantiates it, so that two shared libraries built with other flags or for
/// other architectures do not merge their kernels.
#if defined(__GNUC__)
#define TIDE_HIDDEN __attribute__((visibility("hidden")))
#else
#define TIDE_HIDDEN
#endif
