// SPDX-License-Identifier: Apache-2.0
//
// A model that is known at run time only: a JSON file becomes a layout by the functions that check and measure layouts
// at compile time, and is gathered.
//
//   05_your_model_file [FILE]

#include "support/expect.hpp"
#include "support/model_file.hpp"

#include <tide/tide.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>

using tide_example::expect;

// snippet: model-file
using Gather = tide::AllGather<tide::DynamicLayout, tide::UnicastTransport>;

void one_rank(tide::HostFabric& fabric, const tide::DynamicLayout& layout) {
  tide::Shards<tide::DynamicLayout> shards{fabric, layout};
  tide::SlotPool<tide::Depth<1>, tide::DynamicLayout> slots{fabric, layout};
  Gather gather{fabric, slots, layout};
  fabric.init();

  const tide::GroupView group = layout.view().group;
  for (tide::index_t p = 0; p < group.size(); ++p) {  // every byte of a shard is its rank's number
    std::ranges::fill(shards.view().bytes_of(tide::ParameterIndex{p}), std::byte(fabric.rank().value));
  }
  auto stream = fabric.stream();
  auto params = gather.enqueue(shards, stream);
  params.complete().synchronize();
  for (tide::index_t p = 0; p < group.size(); ++p) {
    const tide::Parameter& parameter = group[tide::ParameterIndex{p}];
    const auto bytes = parameter.shape.elements() * static_cast<tide::index_t>(size_bytes(parameter.gathered));
    const std::span<const std::byte> whole{params.at(tide::ParameterIndex{p}), static_cast<std::size_t>(bytes)};
    const bool first_dimension = parameter.sharding.dimension == 0;
    expect(!first_dimension || std::ranges::is_sorted(whole), "shards follow each other in rank order");
  }
  params.release(stream);
}
// end: model-file

int main(int argc, char** argv) {
  const auto beside = std::filesystem::path(__FILE__).parent_path() / "data" / "tiny.json";
  try {
    const tide_example::FileModel model = tide_example::read_model_file(argc > 1 ? argv[1] : beside.string());
    for (const tide_example::FileUnit& unit : model.units) {
      const tide::DynamicLayout layout(unit.parameters, {1, 4});
      tide::HostCluster cluster{{1, 4}};
      cluster.run([&](tide::HostFabric& fabric) { one_rank(fabric, layout); });
      std::printf("%s: %lld bytes in a slot\n", unit.name.c_str(),
                  static_cast<long long>(layout.view().bytes(tide::Buffer::slot)));
    }
  } catch (const tide::Error& error) {
    std::fprintf(stderr, "05_your_model_file: %s\n", error.what());
    return 3;
  }
  return tide_example::verdict();
}
