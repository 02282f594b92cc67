// SPDX-License-Identifier: Apache-2.0
//
// GradientMemory: what the groups of a step write their gradients to, in turns.

#pragma once

#include <tide/memory/gradients.hpp>             // ArenaStorage
#include <tide/pipeline/detail/port_stream.hpp>  // PortStream

#include <vector>

namespace tide::detail {

struct GradientMemory {
  std::vector<ArenaStorage> buffers;
  std::vector<Event> free;   // by buffer: when its last reduce has read it
  std::vector<char> in_use;  // by buffer: whether a handle has it
  index_t bytes = 0;         // of all
  index_t turn = 0;

  GradientMemory(FabricPort& port, index_t count, index_t each) : bytes(count * each) {
    for (index_t i = 0; i < count; ++i) buffers.emplace_back(port, each);
    free.resize(buffers.size());
    in_use.resize(buffers.size(), 0);
  }

  // The buffer that is next; -1 where there are none.
  [[nodiscard]] index_t next(FabricPort& port) const {
    if (buffers.empty()) return -1;
    const index_t buffer = turn % static_cast<index_t>(buffers.size());
    if (in_use[static_cast<std::size_t>(buffer)] != 0) {
      port.refuse(Errc::capacity,
                  text({"tide::ShardedStep: a group must be reduced before another gets its gradient memory; "
                        "Buffers is ",
                        buffers.size(), "."}));
    }
    return buffer;
  }

  // What is enqueued on `stream` from now on may write to it.
  void take(index_t buffer, PortStream stream) {
    stream.wait(free[static_cast<std::size_t>(buffer)]);
    in_use[static_cast<std::size_t>(buffer)] = 1;
    ++turn;
  }

  // May be written again after `read`.
  void give_back(index_t buffer, const Event& read) noexcept {
    free[static_cast<std::size_t>(buffer)] = read;
    in_use[static_cast<std::size_t>(buffer)] = 0;
  }
};

}  // namespace tide::detail
