// SPDX-License-Identifier: Apache-2.0
//
// The smallest user: gathers and reduces on two CPU ranks, and says which version it got.
#include "consumer.hpp"

#include <atomic>
#include <cstdio>

int main() {
  std::atomic<bool> right{true};
  tide::HostCluster cluster({1, 2});
  cluster.run([&](tide::HostFabric& fabric) {
    consumer::Rank rank(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    if (!consumer::gather_is_right(rank, fabric, stream)) right = false;
    if (!consumer::reduce_is_right(rank, fabric, stream)) right = false;
    fabric.close();
  });
  std::printf("tide %d.%d.%d\n", tide::version.major, tide::version.minor, tide::version.patch);
  return right && tide::version >= tide::Version{0, 1, 0} ? 0 : 1;
}
