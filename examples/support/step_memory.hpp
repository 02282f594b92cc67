// SPDX-License-Identifier: Apache-2.0
//
// What the collectives of a training step take in memory on one rank, term by term: with tide, and on flat buffers.
//
// The model's groups are gathered again in the backward, one ahead of the one that computes. Masters and reduced shards
// are the same on every path and are left out, as are activations. Flat buffers, as FSDP2 has them (PyTorch 2.11,
// torch/distributed/fsdp/_fully_shard): while group i computes its gradients there are its whole parameters, the flat
// output of the gather of group i-1, its gradients, and the f32 input of the reduce-scatter of group i or i+1. The
// allocator gives this memory to others when it is free. Symmetric memory does not: windows stay, so that a path on
// them holds as many flat outputs as can be alive, and the input of a reduce, at the size of the largest group all the
// time.

#pragma once

#include <tide/memory/slot_pool.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {

/// A part of a model: `repeat` groups of one layout.
struct MemoryPart {
  tide::LayoutView layout{};
  tide::index_t repeat = 1;
};

/// How a step is driven.
struct StepChoices {
  tide::index_t prefetch = 1;          ///< groups that are gathered ahead
  tide::index_t gradient_buffers = 2;  ///< groups whose gradients have memory; a flat path has those of one
};

namespace detail {

/// Bytes, times how many; both count up.  @throws tide::Error (Errc::capacity) where 64 bits do not hold them
class StepBytes {
 public:
  StepBytes(tide::index_t bytes, tide::index_t times = 1)  // NOLINT(google-explicit-constructor)
      : bytes_(tide::checked_product(bytes, times)) {
    if (bytes_ < 0) refuse();
  }
  StepBytes& operator+=(StepBytes other) {
    if (bytes_ > INT64_MAX - other.bytes_) refuse();
    bytes_ += other.bytes_;
    return *this;
  }
  [[nodiscard]] tide::index_t value() const noexcept { return bytes_; }

 private:
  [[noreturn]] static void refuse() {
    tide::raise(tide::Errc::capacity, "a step on this mesh takes more bytes than this program counts");
  }

  tide::index_t bytes_;
};

}  // namespace detail

/// What a path needs, in bytes.
struct StepMemory {
  std::string path;
  std::vector<std::pair<std::string, tide::index_t>> terms{};

  /// @throws tide::Error (Errc::capacity) where 64 bits do not hold the sum
  [[nodiscard]] tide::index_t peak() const {
    detail::StepBytes sum = 0;
    for (const auto& term : terms) sum += term.second;
    return sum.value();
  }
};

namespace detail {

/// Bytes of one group on a flat path.
struct FlatGroup {
  tide::index_t whole = 0;      ///< its parameters
  tide::index_t flat = 0;       ///< the output of its gather, padded to chunks
  tide::index_t gradients = 0;  ///< as the backward makes them
  tide::index_t widened = 0;    ///< the input of its reduce-scatter: f32, padded to chunks
};

[[nodiscard]] inline FlatGroup flat_group(const tide::LayoutView& layout) {
  FlatGroup group;
  for (const tide::Parameter& parameter : layout.group.parameters) {
    const tide::index_t elements = parameter.shape.elements();
    group.whole += elements * static_cast<tide::index_t>(size_bytes(parameter.gathered));
    group.gradients += elements * static_cast<tide::index_t>(size_bytes(parameter.gradient));
  }
  tide::LayoutView padded = layout;
  padded.packing = tide::Fsdp2Packing::rule;
  group.flat = layout.mesh.ranks() * padded.max_bytes(tide::Buffer::shards);
  group.widened = layout.mesh.ranks() * padded.max_bytes(tide::Buffer::output);
  return group;
}

/// One group of each part, in the order of the forward.
[[nodiscard]] inline std::vector<FlatGroup> flat_groups(const std::vector<MemoryPart>& parts) {
  std::vector<FlatGroup> groups;
  for (const MemoryPart& part : parts) groups.push_back(flat_group(part.layout));
  return groups;
}

/// Flat outputs of the `prefetch` groups before number `i` of part `p`.
[[nodiscard]] inline tide::index_t flat_ahead(const std::vector<MemoryPart>& parts,
                                              const std::vector<FlatGroup>& groups, std::size_t p, tide::index_t i,
                                              tide::index_t prefetch) {
  StepBytes ahead = 0;
  for (;;) {
    const tide::index_t count = std::min(prefetch, i);
    ahead += StepBytes(groups[p].flat, count);
    prefetch -= count;
    if (prefetch == 0 || p == 0) return ahead.value();
    i = parts[--p].repeat;
  }
}

[[nodiscard]] inline tide::index_t group_count(const std::vector<MemoryPart>& parts) {
  tide::index_t groups = 0;
  for (const MemoryPart& part : parts) groups += part.repeat;
  return groups;
}

/// Slots that `ShardedStep` takes: no group is gathered twice at once.
template <class Box>
[[nodiscard]] tide::index_t slots_of_step(const std::vector<MemoryPart>& parts, const StepChoices& choices) {
  return std::min(tide::slots_needed<Box>(choices.prefetch), group_count(parts) + (tide::reuses_slots<Box> ? 1 : 0));
}

/// With tide: slots, gradient memory, an inbox; `reduce` is a reduce's memory of a layout.
template <class Memory>
[[nodiscard]] StepMemory tide_memory(std::string path, const std::vector<MemoryPart>& parts, const StepChoices& choices,
                                     tide::index_t slots, const Memory& reduce) {
  tide::index_t slot = 0;
  tide::index_t beside = 0;
  tide::index_t gradients = 0;
  StepBytes inboxes = 0;
  for (const MemoryPart& part : parts) {
    slot = std::max(slot, slot_bytes_with_reuse(part.layout));
    beside = std::max(beside, tide::slot_network(part.layout).bytes());
    gradients = std::max(gradients, part.layout.bytes(tide::Buffer::gradients));
    inboxes += reduce(part.layout);
  }
  return {std::move(path),
          {{std::to_string(slots) + " slots", StepBytes(slot, slots).value()},
           {"beside slots, for what crosses nodes", StepBytes(beside, slots).value()},
           {std::to_string(choices.gradient_buffers) + " x gradients",
            StepBytes(gradients, choices.gradient_buffers).value()},
           {"inboxes of reduces", inboxes.value()}}};
}

}  // namespace detail

/// With pieces in a slot. @pre no gradient is wider than its parameter
/// @throws tide::Error (Errc::layout) otherwise; here and below (Errc::capacity) where 64 bits do not hold the bytes
[[nodiscard]] inline StepMemory memory_with_slots(const std::vector<MemoryPart>& parts, const StepChoices& choices) {
  return detail::tide_memory("tide.slots", parts, choices, detail::slots_of_step<tide::SlotReuse>(parts, choices),
                             [](const tide::LayoutView& layout) {
                               return tide::SlotReuse::memory(layout, tide::Exchange::doubling).network.bytes();
                             });
}

/// With a ring for each part of the model, of 4 chunks in 64 MiB if not said.
template <class Ring = tide::Ring<tide::Chunks<4>, tide::Bytes<(tide::index_t{64} << 20)>>>
[[nodiscard]] StepMemory memory_with_ring(const std::vector<MemoryPart>& parts, const StepChoices& choices) {
  return detail::tide_memory(
      "tide.ring", parts, choices, detail::slots_of_step<Ring>(parts, choices),
      [](const tide::LayoutView& layout) { return Ring::memory(layout, tide::Exchange::doubling).bytes(); });
}

/// On flat buffers from an allocator: the turn of the backward that takes the most.
[[nodiscard]] inline StepMemory memory_stock(const std::vector<MemoryPart>& parts, const StepChoices& choices) {
  const std::vector<detail::FlatGroup> groups = detail::flat_groups(parts);
  StepMemory most{"stock"};
  for (std::size_t p = groups.size(); p-- > 0;) {
    const detail::FlatGroup& group = groups[p];
    for (tide::index_t i = parts[p].repeat - 1; i >= 0; --i) {
      const bool last = i == parts[p].repeat - 1;
      const tide::index_t before = last && p + 1 < groups.size() ? groups[p + 1].widened : 0;
      StepMemory turn{"stock",
                      {{"whole parameters", group.whole},
                       {"flat outputs of gathers ahead", detail::flat_ahead(parts, groups, p, i, choices.prefetch)},
                       {"gradients", group.gradients},
                       {"input of a reduce-scatter, f32", std::max(before, group.widened)}}};
      if (turn.peak() > most.peak()) most = std::move(turn);
      if (!last) i = std::min(i, choices.prefetch);  // between, all turns are alike
    }
  }
  return most;
}

/// On flat buffers in windows that stay.
[[nodiscard]] inline StepMemory memory_symmetric(const std::vector<MemoryPart>& parts, const StepChoices& choices) {
  detail::FlatGroup largest;
  for (const detail::FlatGroup& group : detail::flat_groups(parts)) {
    largest.whole = std::max(largest.whole, group.whole);
    largest.flat = std::max(largest.flat, group.flat);
    largest.gradients = std::max(largest.gradients, group.gradients);
    largest.widened = std::max(largest.widened, group.widened);
  }
  const tide::index_t outputs = std::min(choices.prefetch + 1, detail::group_count(parts));
  return {"symmetric",
          {{"whole parameters", largest.whole},
           {std::to_string(outputs) + " flat outputs of gathers", detail::StepBytes(largest.flat, outputs).value()},
           {"gradients", largest.gradients},
           {"input of a reduce-scatter, f32", largest.widened}}};
}

}  // namespace tide_example
