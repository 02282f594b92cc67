// SPDX-License-Identifier: Apache-2.0
//
// Op: one step of a plan, as 64 bytes of plain data. There are seven kinds and there will be no more.
//
//   kind       reads                     writes                      fields that mean something else
//   copy       source (own)              target (of `peer`)
//   multicast  source (own)              target (of every rank of the node, own included)
//   put        source (own)              target (of `peer`), later   extra: the word raised there, behind the bytes,
//                                                                    source_pitch: its value, target_pitch: raises in a run
//   signal                               target: a word (of `peer`)  width: the value, rows: raises in a run
//   wait       target: a word (own)                                  width: the value, rows: raises in a run
//   reduce     source (own input)        target (own)                extra: where the first piece lies in an inbox,
//              and the pieces                                        peer: position of the own input among all
//   cast       source (own)              target (own)
//
// A row has `width` bytes at the source; at the target as many elements of the kernel's output. Rows are
// `source_pitch` and `target_pitch` bytes apart; inside a piece they keep the spacing that they have at the target.
//
// A put is over on its lane when its source may be written again. Its bytes land at any time after that, and its word
// rises behind them. What one lane sends to one rank of another node, puts and signals, comes in order; nothing else
// does (docs/decisions/0006-the-network-in-a-plan.md).
//
// Test: tests/plan/op.test.cpp

#pragma once

#include <tide/core/index.hpp>  // Rank, LaneIndex, index_t

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tide {

/// What an op does.
enum class OpKind : std::uint8_t { copy, multicast, put, signal, wait, reduce, cast };

inline constexpr int op_kind_count = 7;

[[nodiscard]] constexpr std::string_view name(OpKind kind) noexcept {
  constexpr std::string_view names[] = {"copy", "multicast", "put", "signal", "wait", "reduce", "cast"};
  return names[static_cast<int>(kind)];
}

/// The memories that a plan speaks of. A fabric binds each to a pointer; offsets are bytes from the start of the space.
enum class Space : std::uint8_t {
  master,         ///< f32 shards of the own rank, packed
  shards,         ///< shards of the own rank in the gathered element, packed
  slot,           ///< whole parameters, in the arena
  inbox,          ///< pieces that local peers push; the instance is the chunk of the ring
  network_inbox,  ///< what arrives from other nodes
  gradients,      ///< whole gradients of the own rank
  partials,       ///< sums of a node, on their way
  output,         ///< reduced f32 shards of the own rank, packed
  signals,        ///< 64-bit words
};

inline constexpr int space_count = 9;

[[nodiscard]] constexpr std::string_view name(Space space) noexcept {
  constexpr std::string_view names[] = {"master",    "shards",   "slot",   "inbox",  "network_inbox",
                                        "gradients", "partials", "output", "signals"};
  return names[static_cast<int>(space)];
}

/// Which memory, without the offset. `parameter` names the first parameter of the bytes, for messages and traces, and
/// tells gradients apart where each has a pointer of its own.
struct Place {
  Space space = Space::slot;
  std::uint8_t instance = 0;
  std::uint16_t parameter = 0;

  [[nodiscard]] friend constexpr bool operator==(Place, Place) = default;
};

/// A byte in a space.
struct Address {
  Place place{};
  index_t offset = 0;
};

/// One step of a plan; the table above says what its fields mean.
struct Op {
  OpKind kind = OpKind::copy;
  std::uint8_t kernel = 0;  ///< entry of the collective's kernel table; of reduce and cast
  std::uint16_t lane = 0;
  std::int32_t peer = 0;  ///< rank
  Place source{};
  Place target{};
  Place extra{};
  std::uint32_t rows = 1;
  index_t source_offset = 0;
  index_t target_offset = 0;
  index_t extra_offset = 0;
  index_t width = 0;
  std::uint32_t source_pitch = 0;
  std::uint32_t target_pitch = 0;

  /// Bytes that the op reads at its source.
  [[nodiscard]] constexpr index_t bytes() const noexcept { return width * static_cast<index_t>(rows); }
  [[nodiscard]] constexpr bool moves() const noexcept { return kind != OpKind::signal && kind != OpKind::wait; }

  /// The value of a signal or wait, counted from the start of its run; a wait of 0 or less means an earlier run.
  [[nodiscard]] constexpr index_t value() const noexcept { return width; }
  /// How far the word grows in a run.
  [[nodiscard]] constexpr index_t per_run() const noexcept { return static_cast<index_t>(rows); }
  /// The position of the word of a signal or wait.
  [[nodiscard]] constexpr index_t word() const noexcept { return target_offset / 8; }

  /// The word that an op raises at `peer`, and how.
  struct Raise {
    index_t word = 0;
    index_t value = 0;
    index_t per_run = 0;

    [[nodiscard]] friend constexpr bool operator==(const Raise&, const Raise&) = default;
  };
  [[nodiscard]] constexpr bool raises() const noexcept { return kind == OpKind::signal || kind == OpKind::put; }
  /// @pre raises()
  [[nodiscard]] constexpr Raise raise() const noexcept {
    if (kind == OpKind::signal) return {word(), value(), per_run()};
    return {extra_offset / 8, static_cast<index_t>(source_pitch), static_cast<index_t>(target_pitch)};
  }

  [[nodiscard]] friend constexpr bool operator==(const Op&, const Op&) = default;
};

static_assert(sizeof(Op) == 64 && std::is_trivially_copyable_v<Op>);

}  // namespace tide
