// SPDX-License-Identifier: Apache-2.0
//
// A small user: gathers and reduces on two CPU ranks, and says which version it got.
#include "consumer.hpp"

#include <cstdio>

int main() {
  const bool right = consumer::two_ranks_are_right();
  std::printf("tide %d.%d.%d\n", tide::version.major, tide::version.minor, tide::version.patch);
  return right && tide::version >= tide::Version{0, 1, 0} ? 0 : 1;
}
