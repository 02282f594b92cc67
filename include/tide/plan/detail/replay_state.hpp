// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a replay share: memories, the node that is being replayed, and how faults are told.

#pragma once

#include <tide/plan/detail/replay_faults.hpp>  // ReplayFaults
#include <tide/plan/detail/replay_memory.hpp>  // ReplayMemory

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

class ReplayState {
 public:
  ReplayState(const Collective& plan_of, const PieceTable& table, const OpGraph& graph, VerifyReport& report)
      : collective(plan_of),
        pieces(table),
        ops(graph),
        order(graph),
        memory(plan_of, table, graph, order),
        faults(table, graph, report, plan_of.operation) {}

  // Says which node the accesses that follow are of.
  void begin(NodeIndex v, QueueIndex queue, const OpGraph::Node& what) {
    now = v;
    node = what;
    memory.begin(v, queue, what.run);
  }

  [[nodiscard]] std::uint8_t run() const noexcept { return static_cast<std::uint8_t>(node.run); }

  // Writes to all rows what `by` says of one.
  void write(const MemoryRegion& region, const OpRows& rows, std::span<const Column> by, ParameterIndex parameter,
             bool same = false) {
    const WriteFault fault = memory.write(region, rows, by, same);
    if (!fault.any()) return;
    const Side side = faults.side(now, region, fault.begin, fault.end, parameter);
    const std::string text = faults.who(side) + " writes " + faults.what(side);
    const Law law = collective.operation == Operation::gather ? Law::delivery : Law::sum;
    if (fault.padding) {
      faults.add(law, now, text + ", which is padding", side);
    } else if (fault.own_source) {
      faults.add(Law::order, now, text + ", which it reads as well", side);
    } else {
      const Side before = faults.side(fault.before, region, fault.begin, fault.end, parameter);
      faults.add(law, now, text + ", which " + faults.who(before) + " writes in the same run, too", side, before);
    }
  }

  // Appends `bytes` bytes at `begin` to what `writer` writes to a row; returns where they end. In rows behind it they
  // are `content` stepped by `step`.
  static index_t append(std::vector<Column>& row, index_t begin, index_t bytes, NodeIndex writer,
                        const ByteContent& content, index_t step = 0) {
    if (row.empty() || row.back().step != step || row.back().at(0, begin) != content) {
      row.push_back({{begin, writer, ReaderLists::none, content}, step});
    }
    return begin + bytes;
  }

  // Keeps a fault of contents; `text(side)` is its sentence.
  template <class Text>
  void blame(Law law, const MemoryRegion& region, index_t begin, index_t end, Text text,
             ParameterIndex parameter = {}) {
    if (!faults.wants_content(law, now)) return;
    const Side side = faults.side(now, region, begin, end, parameter);
    faults.add_content(law, faults.who(side) + text(side), side);
  }

  const Collective& collective;
  const PieceTable& pieces;
  const OpGraph& ops;
  ReplayOrder order;
  ReplayMemory memory;
  ReplayFaults faults;
  NodeIndex now = no_node;
  OpGraph::Node node{};
};

}  // namespace tide::detail
