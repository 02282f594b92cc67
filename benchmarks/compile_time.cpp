// SPDX-License-Identifier: Apache-2.0
//
// compile_time: how long compilers take for one translation unit with gather and reduce of a group of 393 parameters,
// and how much memory. At most 10 s and 1 GB each, or the exit code is 1; of nvcc's time that of the host code counts.

#include "../examples/support/args.hpp"
#include "../examples/support/program.hpp"
#include "../examples/support/progress.hpp"
#include "../examples/support/table.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {
namespace {

constexpr std::string_view usage =
    R"(compile_time [--samples N] [COMPILER...]

Compiles gather and reduce of a Qwen3-30B-A3B block (393 parameters, one per expert matrix) on Mesh<1, 8> at -O2, and
prints seconds and peak memory, medians of N samples (3). Without compilers: g++, clang++ and nvcc, those that are
found. The pipelines are a file of a trainer, which names a tide::HostPort; the whole program also holds the cluster
that runs them, and is there to compare. Host code of nvcc is what its front end and the host's compiler take.

  exit code  0 right, 1 the pipelines took a compiler more than 10 s or 1 GB, 2 bad usage, 3 an error, named on
             standard error
)";

constexpr double most_seconds = 10;
constexpr std::int64_t most_bytes = 1'000'000'000;

struct Cost {
  double wall_seconds;
  double cpu_seconds;  ///< what it would take on an idle core
  std::int64_t peak_bytes;
  int status;
  double host_seconds;  ///< of the wall time, what host code took
};

// Runs a command; its cost with that of everything that it started.
Cost run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot start a process");
  if (child == 0) {
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  rusage usage_of_child{};
  if (wait4(child, &status, 0, &usage_of_child) != child) throw std::runtime_error("cannot wait for a process");
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {passed.count(), seconds(usage_of_child.ru_utime) + seconds(usage_of_child.ru_stime),
          std::int64_t{usage_of_child.ru_maxrss} * 1024, WIFEXITED(status) ? WEXITSTATUS(status) : -1, passed.count()};
}

// What the phases for host code took, of a table that nvcc --time wrote: file, phase, ..., milliseconds, unit.
double host_seconds(const std::filesystem::path& table) {
  std::ifstream in(table);
  double milliseconds = 0;
  for (std::string line; std::getline(in, line);) {
    const bool host = line.find("cudafe++") != std::string::npos || line.find("(compiling)") != std::string::npos ||
                      line.find("(preprocessing 4)") != std::string::npos;
    const std::size_t end = line.rfind(',');
    if (!host || end == std::string::npos) continue;
    milliseconds += std::strtod(line.c_str() + line.rfind(',', end - 1) + 1, nullptr);
  }
  return milliseconds / 1000;
}

// One of an odd number of samples.
Cost median(std::vector<Cost> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end(),
                   [](const Cost& a, const Cost& b) { return a.wall_seconds < b.wall_seconds; });
  return *middle;
}

bool is_found(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "" : path;
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    if (access((folders.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

int compile_time(const Args& args) {
  std::vector<std::string> compilers = args.words();
  if (compilers.empty()) {
    for (const char* compiler : {"g++", "clang++"}) {
      if (is_found(compiler)) compilers.emplace_back(compiler);
    }
    for (const char* nvcc : {"nvcc", "/usr/local/cuda/bin/nvcc"}) {
      if (!is_found(nvcc)) continue;
      compilers.emplace_back(nvcc);
      break;
    }
  }
  const std::filesystem::path here = std::filesystem::path(__FILE__).parent_path();
  const std::filesystem::path phases =
      std::filesystem::temp_directory_path() / ("tide_compile_time." + std::to_string(getpid()) + ".csv");
  const std::int64_t samples = args.number("--samples", 3, 1, 99);
  Table table({"compiler", "file", "wall s", "host code s", "cpu s", "peak MB"});
  bool within = true;
  const Progress progress;
  for (const std::string& compiler : compilers) {
    if (!is_found(compiler)) throw std::runtime_error("there is no compiler '" + compiler + "'");
    const bool nvcc = std::filesystem::path(compiler).filename() == "nvcc";
    for (const char* file : {"pipelines", "whole_program"}) {
      progress.say(compiler + ": " + file);
      std::vector<std::string> command{compiler, "-std=c++20", "-O2", "-I", (here.parent_path() / "include").string()};
      for (const char* word : {"-x", nvcc ? "cu" : "c++", "-c", "-o", "/dev/null"}) command.emplace_back(word);
      if (nvcc) command.insert(command.end(), {"--time", phases.string()});
      command.push_back((here / "support" / (std::string(file) + ".txt")).string());
      std::vector<Cost> costs;
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        std::filesystem::remove(phases);
        Cost& cost = costs.emplace_back(run(command));
        if (cost.status != 0) throw std::runtime_error(compiler + " ended with code " + std::to_string(cost.status));
        if (nvcc) cost.host_seconds = host_seconds(phases);
      }
      std::filesystem::remove(phases);
      const Cost cost = median(std::move(costs));
      const auto tenths = [](double seconds) {
        const auto number = static_cast<std::int64_t>(std::lround(seconds * 10));
        return std::to_string(number / 10) + "." + std::to_string(number % 10);
      };
      table.add({compiler, file, tenths(cost.wall_seconds), tenths(cost.host_seconds), tenths(cost.cpu_seconds),
                 grouped(cost.peak_bytes / 1'000'000)});
      const bool judged = std::string_view(file) == "pipelines";
      within = within && (!judged || (cost.host_seconds <= most_seconds && cost.peak_bytes <= most_bytes));
    }
  }
  progress.clear();
  std::cout << table;
  return within ? right : violated;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::compile_time(Args(argc, argv, {{"--samples", Args::value}}));
  });
}
