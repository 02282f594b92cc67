// SPDX-License-Identifier: Apache-2.0
//
// What a report of measurements on GPUs says of the run it is of: machine, versions, command, date.

#pragma once

#include "must.cuh"
#include "report.hpp"

#include <tide/fabric/detail/nccl_window.cuh>
#include <tide/version.hpp>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

namespace tide_benchmark {

[[nodiscard]] inline std::string version_text(int code, int thousand) {
  return std::to_string(code / thousand) + "." + std::to_string(code % thousand / (thousand / 100));
}

[[nodiscard]] inline std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// What a report says of the machine, of versions, and of the command that is running on `gpus` GPUs.
inline void describe_run(Report& report, int argc, char** argv, int gpus) {
  for (int i = 0; i < argc; ++i) report.command += (i > 0 ? " " : "") + std::string(argv[i]);
  report.date = now_text();
  cudaDeviceProp device{};
  must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  report.machine = (gpus > 1 ? std::to_string(gpus) + " x " : std::string()) + device.name;
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  must(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  must(ncclGetVersion(&nccl), "ncclGetVersion");
  report.versions["tide"] = std::to_string(tide::version.major) + "." + std::to_string(tide::version.minor) + "." +
                            std::to_string(tide::version.patch);
  std::ifstream module_version("/sys/module/nvidia/version");
  std::string text;
  if (module_version >> text) report.versions["driver"] = text;
  report.versions["cuda_driver"] = version_text(driver, 1000);
  report.versions["cuda_runtime"] = version_text(runtime, 1000);
  report.versions["nccl"] = tide::detail::nccl_version_text(nccl);
  report.versions["nccl_header"] = tide::detail::nccl_version_text(NCCL_VERSION_CODE);
  for (const char* name : {"NCCL_NVLS_ENABLE", "CUDA_DEVICE_MAX_CONNECTIONS"}) {
    const char* value = std::getenv(name);
    report.versions[name] = value != nullptr ? value : "";
  }
}

}  // namespace tide_benchmark
