// SPDX-License-Identifier: Apache-2.0
//
// compile_time: how long compilers take for one translation unit with gather and reduce of a group of 393 parameters,
// and how much memory. At most 10 s and 1 GB each, or the exit code is 1.

#include "../examples/support/args.hpp"
#include "../examples/support/program.hpp"
#include "../examples/support/table.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tide_example {
namespace {

constexpr std::string_view usage =
    R"(compile_time [COMPILER...]

Compiles gather and reduce of a Qwen3-30B-A3B block (393 parameters, one per expert matrix) on Mesh<1, 8> at -O2, and
prints seconds and peak memory. Without arguments: g++, clang++ and nvcc, those that are found.

  exit code  0 right, 1 a compiler took more than 10 s or 1 GB, 2 bad usage, 3 an error, named on standard error
)";

struct Cost {
  double wall_seconds;
  double cpu_seconds;  ///< what it would take on an idle core
  std::int64_t peak_bytes;
  int status;
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
          std::int64_t{usage_of_child.ru_maxrss} * 1024, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
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
    for (const char* compiler : {"g++", "clang++", "nvcc"}) {
      if (is_found(compiler)) compilers.emplace_back(compiler);
    }
  }
  const std::filesystem::path here = std::filesystem::path(__FILE__).parent_path();
  Table table({"compiler", "wall s", "cpu s", "peak MB"});
  bool within = true;
  for (const std::string& compiler : compilers) {
    if (!is_found(compiler)) throw std::runtime_error("there is no compiler '" + compiler + "'");
    const bool nvcc = std::filesystem::path(compiler).filename() == "nvcc";
    std::vector<std::string> command{compiler, "-std=c++20", "-O2", "-I", (here.parent_path() / "include").string()};
    for (const char* word : {"-x", nvcc ? "cu" : "c++", "-c", "-o", "/dev/null"}) command.emplace_back(word);
    command.push_back((here / "support" / "gather_and_reduce.txt").string());
    const Cost cost = run(command);
    if (cost.status != 0) throw std::runtime_error(compiler + " ended with code " + std::to_string(cost.status));
    const auto tenths = [](double seconds) {
      const auto number = static_cast<std::int64_t>(std::lround(seconds * 10));
      return std::to_string(number / 10) + "." + std::to_string(number % 10);
    };
    table.add({compiler, tenths(cost.wall_seconds), tenths(cost.cpu_seconds), grouped(cost.peak_bytes / 1'000'000)});
    within = within && cost.wall_seconds <= 10 && cost.peak_bytes <= 1'000'000'000;
  }
  std::cout << table;
  return within ? right : violated;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage,
                                   [&] { return tide_example::compile_time(Args(argc, argv, {})); });
}
