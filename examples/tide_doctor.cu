// SPDX-License-Identifier: Apache-2.0
//
// tide_doctor: what this machine's GPUs, their links, the driver, the CUDA runtime and NCCL can do for tide.

#include "support/args.hpp"
#include "support/doctor.hpp"

#include <tide/tide.cuh>

#include <cstdlib>

namespace tide_example {
namespace {

using tide::detail::check;

constexpr std::string_view usage =
    R"(tide_doctor [--devices N] [--deadline-ms N] [--json FILE]

Says what this machine can do: versions, GPUs, links, multicast, one-sided puts, queues. Then runs a pattern through
every path that there is, compares every byte, and says of the others why they are refused.

  --devices N      use the first N GPUs; all by default
  --deadline-ms N  of every wait, 20000 by default
  --json FILE      what it found, "-" for standard output
  exit code        0 every path that ran is right, 1 bytes were wrong, 2 bad usage, 3 an error, named on standard error
)";

struct DeviceMemory {
  static void upload(void* to, const std::vector<std::byte>& bytes) {
    check(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  static std::vector<std::byte> download(const void* from, std::size_t count) {
    std::vector<std::byte> bytes(count);
    check(cudaMemcpy(bytes.data(), from, count, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bytes;
  }
  static void poison(void* at, std::size_t count) {
    check(cudaMemset(at, 0xEE, count), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
};

[[nodiscard]] std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// What is known without running anything.
[[nodiscard]] nlohmann::json machine(int devices) {
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(ncclGetVersion(&nccl), "ncclGetVersion");
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  nlohmann::json found = {{"driver_cuda", cuda_version(driver)},
                          {"runtime_cuda", cuda_version(runtime)},
                          {"nccl_header", tide::detail::nccl_version_text(NCCL_VERSION_CODE)},
                          {"nccl_library", tide::detail::nccl_version_text(nccl)},
                          {"hardware_queues", connections != nullptr ? connections : "8"},
                          {"gpus", nlohmann::json::array()}};
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    CUdevice handle = 0;
    check(cuDeviceGet(&handle, device), "cuDeviceGet");
    const auto attribute = [&](CUdevice_attribute which) {
      int value = 0;
      check(cuDeviceGetAttribute(&value, which, handle), "cuDeviceGetAttribute");
      return value;
    };
    std::vector<int> peers;
    for (int other = 0; other < devices; ++other) {
      int reachable = 0;
      if (other != device) check(cudaDeviceCanAccessPeer(&reachable, device, other), "cudaDeviceCanAccessPeer");
      if (reachable != 0) peers.push_back(other);
    }
    found["gpus"].push_back(
        {{"name", properties.name},
         {"memory_bytes", properties.totalGlobalMem},
         {"sms", properties.multiProcessorCount},
         {"copy_engines", properties.asyncEngineCount},
         {"peers", peers},
         {"multicast", attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0},
         {"stream_memory_operations", attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0}});
  }
  return found;
}

// Copies between two GPUs, or inside one, as the copy engines do them.
void diagnose_copies(Diagnosis& diagnosis, const nlohmann::json& gpus) {
  constexpr std::size_t count = std::size_t{64} << 20;
  const int devices = static_cast<int>(gpus.size());
  std::vector<std::byte> pattern(count);
  for (std::size_t i = 0; i < count; ++i) pattern[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      const std::string between = "GPU " + std::to_string(from) + " to " + std::to_string(to);
      const std::string path = from == to ? "copy inside a GPU" : "copy to a peer";
      const std::vector<int> peers = gpus[static_cast<std::size_t>(from)]["peers"];
      if (from != to && std::find(peers.begin(), peers.end(), to) == peers.end()) {
        diagnosis.refuse(path, between, "the driver gives no access to this peer");
        continue;
      }
      void* source = nullptr;
      void* target = nullptr;
      check(cudaSetDevice(to), "cudaSetDevice");
      check(cudaMalloc(&target, count), "cudaMalloc");
      DeviceMemory::poison(target, count);
      check(cudaSetDevice(from), "cudaSetDevice");
      check(cudaMalloc(&source, count), "cudaMalloc");
      DeviceMemory::upload(source, pattern);
      const double seconds = median_seconds([&] {
        check(cudaMemcpyPeerAsync(target, to, source, from, count, nullptr), "cudaMemcpyPeerAsync");
        check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
      });
      const std::string wrong = doctor::difference(DeviceMemory::download(target, count), pattern);
      diagnosis.add({path, between, wrong.empty() ? "right" : "wrong", static_cast<double>(count) / seconds / 1e9,
                     static_cast<tide::index_t>(count), wrong});
      check(cudaFree(source), "cudaFree");
      check(cudaFree(target), "cudaFree");
    }
  }
}

// The first pair of GPUs that cannot reach each other, or an empty text.
[[nodiscard]] std::string unreachable(const nlohmann::json& gpus) {
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    const std::vector<int> peers = gpus[a]["peers"];
    if (peers.size() + 1 != gpus.size()) return "GPU " + std::to_string(a) + " cannot reach every other";
  }
  return {};
}

// What a fabric on these ranks says.
[[nodiscard]] std::string why_no_multicast(tide::CudaCluster& cluster) {
  std::string why;
  cluster.run([&](tide::CudaFabric& fabric) {
    if (fabric.rank() == tide::Rank{0}) why = fabric.lacks(tide::Capability::multicast);
  });
  return why;
}

[[nodiscard]] std::string why_no_puts(const nlohmann::json& machine) {
  if (NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 2)) {
    return "NCCL " + machine["nccl_header"].get<std::string>() + " has none without restrictions; 2.31.2 has";
  }
  return "not tried: they need ranks on several nodes; tests/support/cluster starts such on one machine";
}

void print(const nlohmann::json& machine) {
  std::cout << tide_version() << ", CUDA " << machine["runtime_cuda"].get<std::string>() << " on a driver for "
            << machine["driver_cuda"].get<std::string>() << ", NCCL " << machine["nccl_library"].get<std::string>()
            << " (compiled with " << machine["nccl_header"].get<std::string>() << "), "
            << machine["hardware_queues"].get<std::string>() << " hardware queues\n";
  std::size_t number = 0;
  for (const nlohmann::json& gpu : machine["gpus"]) {
    std::cout << "GPU " << number++ << ": " << gpu["name"].get<std::string>() << ", "
              << gpu["memory_bytes"].get<std::int64_t>() / (1 << 30) << " GiB, " << gpu["sms"].get<int>() << " SMs, "
              << gpu["copy_engines"].get<int>() << " copy engines, peers " << gpu["peers"].dump() << ", multicast "
              << (gpu["multicast"].get<bool>() ? "yes" : "no") << ", stream memory operations "
              << (gpu["stream_memory_operations"].get<bool>() ? "yes" : "no") << '\n';
  }
  std::cout << '\n';
}

int tide_doctor(const Args& args) {
  if (!args.words().empty()) throw UsageError("one word too many: '" + args.words().front() + "'");
  int present = 0;
  if (cudaGetDeviceCount(&present) != cudaSuccess || present == 0) {
    tide::raise(tide::Errc::capacity, "no GPU that this driver and CUDA runtime can use");
  }
  check(cuInit(0), "cuInit");
  const int devices = static_cast<int>(args.number("--devices", present, 1, present));
  const nlohmann::json found = machine(devices);
  const nlohmann::json& gpus = found["gpus"];
  if (const auto file = args.text("--json")) require_writable(*file);
  Diagnosis diagnosis;
  diagnose_copies(diagnosis, gpus);

  const std::string all = std::to_string(devices) + (devices == 1 ? " rank" : " ranks");
  if (const std::string why = unreachable(gpus); !why.empty()) {
    diagnosis.refuse("gathers and reduce-scatters", all, why);
    diagnosis.refuse("gather by multicast", all, why);
  } else {
    std::vector<int> list;
    for (int device = 0; device < devices; ++device) list.push_back(device);
    tide::CudaOptions options;
    options.deadline = std::chrono::milliseconds(args.number("--deadline-ms", 20000, 1, 3'600'000));
    tide::CudaCluster cluster(list, options);
    diagnose_collectives<tide::UnicastTransport, tide::CudaFabric, 64>(diagnosis, cluster, DeviceMemory{});
    if (const std::string none = why_no_multicast(cluster); !none.empty()) {
      diagnosis.refuse("gather by multicast", all, none);
    } else {
      diagnose_collectives<tide::MulticastTransport, tide::CudaFabric, 64>(diagnosis, cluster, DeviceMemory{});
    }
  }
  diagnosis.refuse("puts to other nodes", "", why_no_puts(found));
  return conclude(args, found, diagnosis, [&] { print(found); });
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::tide_doctor(
        Args(argc, argv, {{"--devices", Args::value}, {"--deadline-ms", Args::value}, {"--json", Args::value}}));
  });
}
