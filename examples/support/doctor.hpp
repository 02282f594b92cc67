// SPDX-License-Identifier: Apache-2.0
//
// What tide_doctor does on any fabric: sends a pattern through every path, compares every byte with what it must be,
// also those that must stay as they were, and keeps a line about each path.
//
//   path                       between   state      GB/s   checked bytes   why
//   gather from shards         4 ranks   right      11.2     268,543,232
//   gather by multicast        4 ranks   refused                           the GPU has no multicast
//
// Values are small whole numbers, which every element type holds and every order of adding sums to the same.

#pragma once

#include "args.hpp"
#include "files.hpp"
#include "median.hpp"
#include "program.hpp"
#include "table.hpp"

#include <nlohmann/json.hpp>
#include <tide/tide.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {

/// One path of the machine.
struct Finding {
  std::string path;
  std::string between;
  std::string state;  ///< right, wrong or refused
  double gigabytes_per_second = 0;
  tide::index_t checked_bytes = 0;
  std::string why{};  ///< of what is wrong or refused
};

class Diagnosis {
 public:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void refuse(std::string path, std::string between, std::string why) {
    add({std::move(path), std::move(between), "refused", 0, 0, std::move(why)});
  }

  /// 0 when all that ran is right, 1 when a byte was wrong.
  [[nodiscard]] int exit_code() const {
    for (const Finding& finding : findings_) {
      if (finding.state == "wrong") return violated;
    }
    return right;
  }

  friend std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis) {
    Table table({"path", "between", "state", "GB/s", "checked bytes", "why"});
    for (const Finding& finding : diagnosis.findings_) {
      const auto tenths = std::lround(finding.gigabytes_per_second * 10);
      const std::string rate = std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
      const bool ran = finding.state != "refused";
      table.add({finding.path, finding.between, finding.state, ran ? rate : "",
                 ran ? grouped(finding.checked_bytes) : "", finding.why});
    }
    return out << table;
  }

  [[nodiscard]] nlohmann::json json() const {
    nlohmann::json paths = nlohmann::json::array();
    for (const Finding& finding : findings_) {
      nlohmann::json path = {{"path", finding.path}, {"between", finding.between}, {"state", finding.state}};
      if (finding.state != "refused") {
        path["gigabytes_per_second"] = finding.gigabytes_per_second;
        path["checked_bytes"] = finding.checked_bytes;
      }
      if (!finding.why.empty()) path["why"] = finding.why;
      paths.push_back(std::move(path));
    }
    return paths;
  }

 private:
  std::vector<Finding> findings_;
};

/// Prints what was found, `print_machine()` first, unless JSON takes standard output; writes JSON where it is asked
/// for.
template <class PrintMachine>
[[nodiscard]] int conclude(const Args& args, const nlohmann::json& machine, const Diagnosis& diagnosis,
                           const PrintMachine& print_machine) {
  if (args.text("--json", "") != "-") {
    print_machine();
    std::cout << diagnosis;
  }
  if (const auto file = args.text("--json")) {
    const nlohmann::json json = {{"machine", machine}, {"paths", diagnosis.json()}};
    write_file(*file, [&](std::ostream& out) { out << json.dump(1) << '\n'; });
  }
  return diagnosis.exit_code();
}

/// "tide 0.1.0"
[[nodiscard]] inline std::string tide_version() {
  return "tide " + std::to_string(tide::version.major) + "." + std::to_string(tide::version.minor) + "." +
         std::to_string(tide::version.patch);
}

/// The median seconds of five runs.
template <class Run>
[[nodiscard]] double median_seconds(const Run& run) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(std::move(seconds));
}

namespace doctor {

// A matrix of so many megabytes, rows that no world divides, and a parameter of which most ranks own nothing.
template <tide::index_t Megabytes>
inline constexpr auto group = tide::group(tide::param<tide::bf16>("matrix", {128 * Megabytes, 4096}),
                                          tide::param<tide::bf16>("odd", {257, 33}), tide::param<float>("norm", {5}));

// Element `e` of parameter `p`; `salt` tells ranks apart where they must differ.
[[nodiscard]] inline float value(tide::index_t p, tide::index_t e, tide::index_t salt) {
  return static_cast<float>((e * 31 + p * 17 + salt * 7) % 251 - 125);
}

// A buffer of a rank as it must be; what lies between parameters is 0xEE.
template <class Value>
[[nodiscard]] std::vector<std::byte> filled(const tide::LayoutView& view, tide::Buffer buffer, tide::Rank rank,
                                            const Value& value_of) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes(buffer, rank)), std::byte{0xEE});
  const auto put = [&](tide::index_t offset, tide::index_t size, float number) {
    const tide::bf16 narrow(number);
    std::memcpy(bytes.data() + offset, size == 4 ? static_cast<const void*>(&number) : &narrow,
                static_cast<std::size_t>(size));
  };
  view.for_each_piece(rank, [&](const tide::Piece& piece) {
    const tide::index_t p = piece.parameter.value;
    const tide::index_t size = piece.size(buffer);
    if (tide::is_dense(buffer)) {
      const tide::index_t start = piece.start[static_cast<std::size_t>(buffer)];
      const tide::index_t elements = view.group[piece.parameter].shape.elements();
      for (tide::index_t e = 0; e < elements; ++e) put(start + e * size, size, value_of(p, e));
      return;
    }
    for (tide::index_t i = 0; i < piece.elements(); ++i) {
      const tide::index_t e = i / piece.width * piece.pitch + piece.first + i % piece.width;
      put(piece.offset(buffer) + i * size, size, value_of(p, e));
    }
  });
  return bytes;
}

// The first byte that differs, or an empty text.
[[nodiscard]] inline std::string difference(const std::vector<std::byte>& got, const std::vector<std::byte>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) return "byte " + std::to_string(i) + " of " + std::to_string(expected.size());
  }
  return {};
}

}  // namespace doctor

/// Runs gathers and a reduce-scatter of `Megabytes` over all ranks of a cluster.
///
/// @param memory  `upload(void*, bytes)`, `download(const void*, count)`, `poison(void*, count)` for the fabric's
/// memory
template <class Transport, class Fabric, tide::index_t Megabytes, class Cluster, class Memory>
void diagnose_collectives(Diagnosis& diagnosis, Cluster& cluster, const Memory& memory) {
  using Layout = tide::ShardLayout<doctor::group<Megabytes>, tide::Mesh<1, tide::dynamic>>;
  using tide::Buffer;
  const tide::index_t ranks = cluster.mesh().ranks();
  const std::string between = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  const std::string how = " (" + std::string(Transport::name) + ")";
  std::vector<Finding> found = {{"gather from shards" + how, between, "right"},
                                {"gather from f32 masters" + how, between, "right"},
                                {"reduce-scatter", between, "right"}};
  std::mutex mutex;
  cluster.run([&](Fabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
    tide::AllGather<Layout, Transport> gather{fabric, slots};
    tide::ReduceScatter<Layout, tide::CopyEngineReducer<>> reduce{fabric};
    tide::Shards<Layout> shards{fabric};
    tide::MasterShards<Layout> masters{fabric};
    tide::MasterShards<Layout> sums{fabric};
    tide::Gradients<Layout> gradients{fabric};
    fabric.init();
    auto stream = fabric.stream();
    const tide::LayoutView view = gather.layout().view();
    const tide::Rank rank = fabric.rank();
    const auto note = [&](std::size_t which, const void* at, const std::vector<std::byte>& expected, double seconds,
                          tide::index_t moved) {
      const std::string wrong = doctor::difference(memory.download(at, expected.size()), expected);
      const std::lock_guard lock(mutex);
      Finding& finding = found[which];
      finding.checked_bytes += static_cast<tide::index_t>(expected.size());
      const double rate = static_cast<double>(moved) / seconds / 1e9;
      finding.gigabytes_per_second =
          finding.gigabytes_per_second == 0 ? rate : std::min(finding.gigabytes_per_second, rate);
      if (wrong.empty()) return;
      finding.state = "wrong";
      finding.why = "rank " + std::to_string(rank.value) + ": " + wrong;
    };

    reduce.scale(1);
    const auto of_all = [](tide::index_t p, tide::index_t e) { return doctor::value(p, e, 0); };
    const tide::index_t slot_bytes = view.bytes(Buffer::slot);
    const std::vector<std::byte> whole = doctor::filled(view, Buffer::slot, rank, of_all);
    memory.upload(shards.data(), doctor::filled(view, Buffer::shards, rank, of_all));
    memory.upload(masters.data(), doctor::filled(view, Buffer::masters, rank, of_all));
    const auto check_gather = [&](std::size_t which, const auto& source) {
      memory.poison(slots.life().data(tide::SlotIndex{0}), static_cast<std::size_t>(slot_bytes));
      const double seconds = median_seconds([&] {
        auto params = gather.enqueue(source, stream);
        params.release(stream);
        stream.synchronize();
      });
      note(which, slots.life().data(tide::SlotIndex{0}), whole, seconds, slot_bytes);
    };
    check_gather(0, shards);
    check_gather(1, masters);

    memory.upload(gradients.data(), doctor::filled(view, Buffer::gradients, rank,
                                                   [&](auto p, auto e) { return doctor::value(p, e, rank.value); }));
    memory.poison(sums.data(), static_cast<std::size_t>(view.bytes(Buffer::masters, rank)));
    const double seconds =
        median_seconds([&] { reduce.enqueue(gradients, sums.view(), stream).shards_ready.synchronize(); });
    const auto total = [&](tide::index_t p, tide::index_t e) {
      float sum = 0;
      for (tide::index_t r = 0; r < ranks; ++r) sum += doctor::value(p, e, r);
      return sum;
    };
    note(2, sums.data(), doctor::filled(view, Buffer::masters, rank, total), seconds, view.bytes(Buffer::gradients));
    fabric.close();
  });
  for (Finding& finding : found) diagnosis.add(std::move(finding));
}

}  // namespace tide_example
