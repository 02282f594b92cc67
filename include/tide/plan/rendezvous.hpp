// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous: puts and signals between nodes as sends and receives, for fabrics whose network is not one-sided. All
// ranks walk through their plans until none can go on without another node; what was put and signalled by then is
// handed over at once, in one phase; then they walk on.
//
//   rank 0   signal ready   wait ready  | put to 1        wait arrived | put to 2  ...
//   rank 1   signal ready   wait ready  | put to 2        wait arrived | put to 0  ...
//   rank 2   signal ready   wait ready  | put to 0        wait arrived | put to 1  ...
//                              phase 0  ^              phase 1         ^           ...
//
// A rank takes part in a phase where it sends or receives something, and takes part before the op of its plan that it
// could not get over. Where a lane has put, its next op that sends nothing waits for the phase: the put is over then.
//
// Laws, for plans that are proved                    (tests/plan/rendezvous.test.cpp)
//   once        every put, and every signal to another node, is sent in one phase
//   paired      it is received in the same phase; what one rank sends another is received in the order of the sends
//   before      a rank takes part in a phase before every wait for what that brings, and behind all that it sends there
//   progress    what is sent in a phase waits for nothing but what earlier phases, earlier runs and the own node bring:
//               so phases can be carried out one after the other, with all lanes of a rank merged into one queue, too
//
// Every rank can write the plans of all ranks, so nobody has to be asked. It costs time and memory for all of them,
// once.

#pragma once

#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/op.hpp>          // Place, Op::Raise
#include <tide/plan/plan.hpp>        // Plan

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tide {

/// What one rank sends and receives in a phase.
struct Rendezvous {
  /// A put, or a signal to another node.
  struct Send {
    std::size_t op = 0;     ///< of the own plan
    std::int32_t peer = 0;  ///< rank
    index_t bytes = 0;      ///< 0 of a signal

    [[nodiscard]] friend constexpr bool operator==(const Send&, const Send&) = default;
  };
  /// What a rank of another node sends, where its bytes belong, and the own word that is raised behind them.
  struct Receive {
    std::int32_t peer = 0;
    index_t bytes = 0;
    Place place{};
    index_t offset = 0;
    Op::Raise raise{};

    [[nodiscard]] friend constexpr bool operator==(const Receive&, const Receive&) = default;
  };

  index_t phase = 0;
  std::size_t position = 0;         ///< number of ops of the own plan that come before
  std::vector<Send> sends{};        ///< in issue order
  std::vector<Receive> receives{};  ///< by rank, of each in its issue order

  [[nodiscard]] friend constexpr bool operator==(const Rendezvous&, const Rendezvous&) = default;
};

/// In which phases each rank takes part, in order.
/// @param plans  of all ranks, in rank order
/// @throws Error (Errc::argument) when a rank waits for what never comes; `verify` says more of such plans
[[nodiscard]] inline std::vector<std::vector<Rendezvous>> rendezvous(const Collective& collective,
                                                                     std::span<const Plan> plans);

}  // namespace tide

#include <tide/plan/detail/rendezvous_walk.hpp>
