// SPDX-License-Identifier: Apache-2.0
//
// tide_doctor: what this machine can do. In a build without CUDA: the paths between CPU ranks.

#include "support/args.hpp"
#include "support/doctor.hpp"

#include <thread>

namespace tide_example {
namespace {

constexpr std::string_view usage =
    R"(tide_doctor [--ranks N] [--json FILE]

Says what this machine can do, runs a pattern through every path that there is, and compares every byte. This build has
no CUDA: it looks at CPU ranks. The build of preset `cuda` looks at GPUs, their links and NCCL.

  --ranks N     CPU ranks, 4 by default
  --json FILE   what it found, "-" for standard output
  exit code     0 every path that ran is right, 1 bytes were wrong, 2 bad usage, 3 an error, named on standard error
)";

struct HostMemory {
  static void upload(void* to, const std::vector<std::byte>& bytes) { std::memcpy(to, bytes.data(), bytes.size()); }
  static std::vector<std::byte> download(const void* from, std::size_t count) {
    std::vector<std::byte> bytes(count);
    std::memcpy(bytes.data(), from, count);
    return bytes;
  }
  static void poison(void* at, std::size_t count) { std::memset(at, 0xEE, count); }
};

int tide_doctor(const Args& args) {
  if (!args.words().empty()) throw UsageError("one word too many: '" + args.words().front() + "'");
  const tide::index_t ranks = args.number("--ranks", 4, 1, 64);
  if (const auto file = args.text("--json")) require_writable(*file);
  Diagnosis diagnosis;
  const auto on_host = [&](auto transport) {
    tide::HostCluster cluster{{1, ranks}};
    diagnose_collectives<decltype(transport), tide::HostFabric, 8>(diagnosis, cluster, HostMemory{});
  };
  on_host(tide::UnicastTransport{});
  on_host(tide::MulticastTransport{});
  diagnosis.refuse("copies between GPUs", "", "this build has no CUDA: use preset cuda");
  const nlohmann::json machine = {{"threads", std::thread::hardware_concurrency()}, {"cuda", nullptr}};
  return conclude(args, machine, diagnosis, [] {
    std::cout << tide_version() << ", " << std::thread::hardware_concurrency()
              << " hardware threads, no CUDA in this build\n\n";
  });
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::tide_doctor(Args(argc, argv, {{"--ranks", Args::value}, {"--json", Args::value}}));
  });
}
