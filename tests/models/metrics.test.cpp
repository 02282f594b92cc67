// SPDX-License-Identifier: Apache-2.0
//
// What FSDP2 shards, pads and sends of real models, at worlds that divide their rows and worlds that do not: every
// number under tests/data/metrics.json, from the layout functions under Fsdp2Packing. All bytes are of bf16.
//
//   uneven     parameters whose ranks do not own equally many rows      pad_bytes   padding in the gather buffer
//   empty      ranks that own no row, by parameter                      pieces      (parameter, rank) pairs that own rows
//   boundary   where a piece begins in its parameter's own storage      runs        contiguous pieces in all
//   pack       where a shard begins in a rank's packed buffer, and where the buffer ends

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/layout_view.hpp>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "support/model_files.hpp"

namespace {

using nlohmann::json;
using tide::Buffer;
using tide::index_t;

struct Metrics {
  index_t bytes = 0;
  index_t shard_bytes = 0;
  index_t pieces = 0;
  index_t runs = 0;
  index_t max_run = 0;
  index_t boundary_gcd = 0;
  index_t length_gcd = 0;
  index_t pack_gcd = 0;
  std::optional<index_t> min_run;
  std::string min_run_param;
  std::vector<std::string> uneven;
  json empty = json::object();
  index_t empty_count = 0;
  json least_aligned_param;  // the first whose boundaries are multiples of the smallest power of two; null without any
  index_t rank_bytes_max = 0;
  index_t rank_bytes_min = 0;
};

index_t largest_power_of_two_in(index_t n) { return n & -n; }

Metrics measure(const tide::LayoutView& view) {
  Metrics metrics;
  const auto parameters = static_cast<std::size_t>(view.group.size());
  std::vector<index_t> boundary(parameters, 0);
  std::vector<index_t> most_rows(parameters, 0);
  std::vector<index_t> fewest_rows(parameters, INT64_MAX);
  std::vector<index_t> smallest_run(parameters, INT64_MAX);
  std::vector<index_t> empty_ranks(parameters, 0);
  std::vector<index_t> rank_bytes;

  metrics.shard_bytes = view.bytes(Buffer::shards);
  for (index_t r = 0; r < view.mesh.ranks(); ++r) {
    const tide::Rank rank{r};
    CHECK(view.bytes(Buffer::shards, rank) == metrics.shard_bytes);
    metrics.pack_gcd = std::gcd(metrics.pack_gcd, metrics.shard_bytes);
    rank_bytes.push_back(0);
    view.for_each_piece(rank, [&](const tide::Piece& piece) {
      const auto p = static_cast<std::size_t>(piece.parameter.value);
      if (r == 0) metrics.bytes += piece.outer * piece.pitch * piece.size(Buffer::slot);
      metrics.pack_gcd = std::gcd(metrics.pack_gcd, piece.offset(Buffer::shards));
      most_rows[p] = std::max(most_rows[p], piece.count);
      fewest_rows[p] = std::min(fewest_rows[p], piece.count);
      if (piece.elements() == 0) {
        ++empty_ranks[p];
        return;
      }
      const index_t run = piece.width * piece.size(Buffer::slot);
      ++metrics.pieces;
      metrics.runs += piece.outer;
      metrics.max_run = std::max(metrics.max_run, run);
      metrics.length_gcd = std::gcd(metrics.length_gcd, run);
      smallest_run[p] = std::min(smallest_run[p], run);
      boundary[p] = std::gcd(boundary[p], piece.offset(Buffer::slot) - piece.start[static_cast<int>(Buffer::slot)]);
      rank_bytes.back() += piece.bytes(Buffer::shards);
    });
  }

  index_t least_aligned = INT64_MAX;
  for (std::size_t p = 0; p < parameters; ++p) {
    const std::string name = view.group.parameters[p].name.str();
    if (most_rows[p] != fewest_rows[p]) metrics.uneven.push_back(name);
    if (empty_ranks[p] > 0) metrics.empty[name] = empty_ranks[p];
    metrics.empty_count += empty_ranks[p];
    if (!metrics.min_run || smallest_run[p] < *metrics.min_run) {
      metrics.min_run = smallest_run[p];
      metrics.min_run_param = name;
    }
    metrics.boundary_gcd = std::gcd(metrics.boundary_gcd, boundary[p]);
    if (boundary[p] != 0 && largest_power_of_two_in(boundary[p]) < least_aligned) {
      least_aligned = largest_power_of_two_in(boundary[p]);
      metrics.least_aligned_param = name;
    }
  }
  metrics.rank_bytes_max = *std::max_element(rank_bytes.begin(), rank_bytes.end());
  metrics.rank_bytes_min = *std::min_element(rank_bytes.begin(), rank_bytes.end());
  return metrics;
}

json record_of(const tide_example::FileUnit& unit, const Metrics& metrics, index_t ranks) {
  const index_t parameters = unit.parameters.view().size();
  return {{"name", unit.name},
          {"repeat", unit.repeat},
          {"params", parameters},
          {"bytes", metrics.bytes},
          {"shard_bytes", metrics.shard_bytes},
          {"gathered_bytes", ranks * metrics.shard_bytes},
          {"pad_bytes", ranks * metrics.shard_bytes - metrics.bytes},
          {"uneven_count", metrics.uneven.size()},
          {"empty_count", metrics.empty_count},
          {"uneven", metrics.uneven},
          {"empty", metrics.empty},
          {"pieces", metrics.pieces},
          {"slots", ranks * parameters},
          {"runs", metrics.runs},
          {"min_run", *metrics.min_run},
          {"min_run_param", metrics.min_run_param},
          {"max_run", metrics.max_run},
          {"boundary_gcd", metrics.boundary_gcd},
          {"length_gcd", metrics.length_gcd},
          {"pack_gcd", metrics.pack_gcd},
          {"least_aligned_param", metrics.least_aligned_param},
          {"rank_bytes_max", metrics.rank_bytes_max},
          {"rank_bytes_min", metrics.rank_bytes_min}};
}

/// Once through the model: every group as often as it is there.
json total_of(const std::vector<json>& groups) {
  json total = {{"groups", 0},
                {"largest_group_bytes", 0},
                {"largest_gathered_bytes", 0},
                {"pad_bytes_worst_group", 0},
                {"boundary_gcd", 0},
                {"length_gcd", 0},
                {"pack_gcd", 0}};
  const auto add = [&](const char* name, index_t times, const json& value) {
    total[name] = total.value(name, index_t{0}) + times * value.get<index_t>();
  };
  const auto raise_to = [&](const char* name, const json& value) {
    total[name] = std::max(total[name].get<index_t>(), value.get<index_t>());
  };
  for (const json& group : groups) {
    const auto repeat = group["repeat"].get<index_t>();
    add("groups", repeat, 1);
    for (const char* name : {"params", "bytes", "gathered_bytes", "pad_bytes", "pieces", "slots", "runs"}) {
      add(name, repeat, group[name]);
    }
    add("uneven_params", repeat, group["uneven_count"]);
    add("empty_pieces", repeat, group["empty_count"]);
    if (group["bytes"].get<index_t>() > total["largest_group_bytes"].get<index_t>()) {
      total["largest_group"] = group["name"];
    }
    raise_to("largest_group_bytes", group["bytes"]);
    raise_to("largest_gathered_bytes", group["gathered_bytes"]);
    raise_to("pad_bytes_worst_group", group["pad_bytes"]);
    if (!total.contains("min_run") || group["min_run"].get<index_t>() < total["min_run"].get<index_t>()) {
      total["min_run"] = group["min_run"];
      total["min_run_param"] = group["min_run_param"];
    }
    for (const char* name : {"boundary_gcd", "length_gcd", "pack_gcd"}) {
      total[name] = std::gcd(total[name].get<index_t>(), group[name].get<index_t>());
    }
  }
  return total;
}

/// Checks every number that is expected.
void check_record(const json& computed, const json& expected) {
  for (const auto& entry : expected.items()) {
    const std::string& name = entry.key();
    CAPTURE(name);
    REQUIRE(computed.contains(name));
    CHECK(computed[name].dump() == entry.value().dump());
  }
}

TEST_CASE("Fsdp2Packing: every number of FSDP2's sharding of real models is reproduced, at all worlds") {
  std::ifstream file(TIDE_TESTS_DIR "/data/metrics.json");
  const json all = json::parse(file);
  CHECK(all.size() == 11);
  for (const auto& model_entry : all.items()) {
    const std::string& model = model_entry.key();
    const json& worlds = model_entry.value();
    CAPTURE(model);
    const tide_example::FileModel listed = tide_test::model_file(model);
    CHECK(worlds.size() == 8);
    for (const auto& world_entry : worlds.items()) {
      const std::string& world = world_entry.key();
      const json& expected = world_entry.value();
      CAPTURE(world);
      const index_t ranks = std::stoll(world);
      REQUIRE(expected["groups"].size() == listed.units.size());
      std::vector<json> groups;
      for (std::size_t u = 0; u < listed.units.size(); ++u) {
        const tide_example::FileUnit& unit = listed.units[u];
        CAPTURE(unit.name);
        const tide::DynamicLayout layout(unit.parameters, {1, ranks}, tide::Fsdp2Packing::rule);
        groups.push_back(record_of(unit, measure(layout.view()), ranks));
        check_record(groups.back(), expected["groups"][u]);
      }
      check_record(total_of(groups), expected["total"]);
    }
  }
}

}  // namespace
