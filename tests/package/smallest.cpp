// SPDX-License-Identifier: Apache-2.0
//
// The least that a user compiles: a layout, and the version. That whole collectives work after an install is for
// main.cpp to show; here CMake is on trial.
#include <tide/element/bf16.hpp>
#include <tide/layout/shard_layout.hpp>
#include <tide/version.hpp>

#include <cstdio>

namespace {
constexpr auto block = tide::group(tide::param<tide::bf16>("weight", {6, 8}), tide::param<tide::bf16>("bias", {5}));
using Layout = tide::ShardLayout<block, tide::Mesh<1, 2>>;
}  // namespace

int main() {
  std::printf("tide %d.%d.%d\n", tide::version.major, tide::version.minor, tide::version.patch);
  return Layout::slot_bytes >= (6 * 8 + 5) * 2 && tide::version >= tide::Version{0, 1, 0} ? 0 : 1;
}
