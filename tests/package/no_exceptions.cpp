// SPDX-License-Identifier: Apache-2.0
//
// Built with -fno-exceptions -fno-rtti: the pipelines run, and an error reaches the handler instead of a catch.
#include "consumer.hpp"

#include <cstdlib>
#include <cstring>

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this file is for a build without exceptions and run-time type information"
#endif

namespace {

void end_well(tide::Errc code, const char* text) {
  std::_Exit(code == tide::Errc::layout && std::strncmp(text, "tide::Mesh: Nodes must be positive", 34) == 0 ? 0 : 2);
}

}  // namespace

int main() {
  if (!consumer::two_ranks_are_right()) return 1;
  tide::set_error_handler(end_well);
  const tide::Mesh<tide::dynamic, tide::dynamic> wrong(0, 2);
  return static_cast<int>(wrong.nodes()) + 3;  // not reached: the handler ends the program
}
