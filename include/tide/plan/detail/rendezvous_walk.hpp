// SPDX-License-Identifier: Apache-2.0
//
// The walk of all ranks through their plans that finds the phases of plan/rendezvous.hpp.

#pragma once

#include <tide/core/error.hpp>       // raise
#include <tide/core/text.hpp>        // text
#include <tide/plan/rendezvous.hpp>  // Rendezvous

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace tide::detail {

class RendezvousWalk {
 public:
  RendezvousWalk(const Collective& collective, std::span<const Plan> plans)
      : mesh_(collective.layout.mesh), words_(collective.words()), plans_(plans), walkers_(plans.size()) {
    for (std::size_t r = 0; r < plans.size(); ++r) {
      walkers_[r].words.assign(static_cast<std::size_t>(words_.count()), 0);
      walkers_[r].has_put.assign(plans[r].lanes.size(), false);
    }
  }

  [[nodiscard]] std::vector<std::vector<Rendezvous>> walk() && {
    for (index_t phase = 0;; ++phase) {
      while (all_go_on()) {
      }
      if (!hand_over(phase)) break;
    }
    std::vector<std::vector<Rendezvous>> all;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      if (walkers_[r].position < plans_[r].ops.size()) refuse(r);
      all.push_back(std::move(walkers_[r].kept));
    }
    return all;
  }

 private:
  struct Walker {
    std::size_t position = 0;
    std::vector<index_t> words{};           // what each has been raised to in this run
    std::vector<bool> has_put{};            // by lane, in this phase
    std::vector<Rendezvous::Send> sends{};  // in this phase
    std::vector<Rendezvous> kept{};
  };

  [[nodiscard]] bool crosses(std::size_t rank, const Op& op) const noexcept {
    return op.raises() && mesh_.node(Rank{op.peer}) != mesh_.node(Rank{static_cast<std::int32_t>(rank)});
  }
  [[nodiscard]] Walker& walker(std::int32_t rank) noexcept { return walkers_[static_cast<std::size_t>(rank)]; }

  // Words only grow, whichever of them is seen first.
  void raise_at(std::int32_t rank, const Op::Raise& raise) noexcept {
    index_t& word = walker(rank).words[static_cast<std::size_t>(raise.word)];
    word = std::max(word, raise.value);
  }

  // Each rank goes as far as it can. Whether any has gone.
  bool all_go_on() {
    bool any = false;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      Walker& walker = walkers_[r];
      for (; walker.position < plans_[r].ops.size(); ++walker.position) {
        if (!step(r, walker, plans_[r].ops[walker.position])) break;
        any = true;
      }
    }
    return any;
  }

  // False where a rank cannot get over an op. A value that is 0 or less counts back into an earlier run, all phases of
  // which have come before.
  bool step(std::size_t rank, Walker& walker, const Op& op) {
    if (crosses(rank, op)) {
      const bool is_put = op.kind == OpKind::put;
      walker.sends.push_back({walker.position, op.peer, is_put ? op.bytes() : 0});
      if (is_put) walker.has_put[op.lane] = true;
      return true;
    }
    if (walker.has_put[op.lane]) return false;
    if (op.kind == OpKind::wait) return walker.words[static_cast<std::size_t>(op.word())] >= op.value();
    if (op.raises()) raise_at(op.peer, op.raise());
    return true;
  }

  // Delivers what has been sent. Whether anything was.
  bool hand_over(index_t phase) {
    std::vector<Rendezvous> met(plans_.size());
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      for (const Rendezvous::Send& send : walkers_[r].sends) {
        const Op& op = plans_[r].ops[send.op];
        const Op::Raise raise = op.raise();
        met[static_cast<std::size_t>(send.peer)].receives.push_back({static_cast<std::int32_t>(r), send.bytes,
                                                                     send.bytes > 0 ? op.target : Place{},
                                                                     send.bytes > 0 ? op.target_offset : 0, raise});
        raise_at(send.peer, raise);
      }
    }
    bool any = false;
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      Walker& walker = walkers_[r];
      met[r].phase = phase;
      met[r].position = walker.position;
      met[r].sends = std::exchange(walker.sends, {});
      walker.has_put.assign(walker.has_put.size(), false);
      if (met[r].sends.empty() && met[r].receives.empty()) continue;
      walker.kept.push_back(std::move(met[r]));
      any = true;
    }
    return any;
  }

  [[noreturn]] void refuse(std::size_t rank) const {
    raise(Errc::argument,
          text({"tide::Rendezvous: plans must make progress with the lanes of each rank merged into one; rank ", rank,
                " does not get over op ", walkers_[rank].position, ". verify says more."}));
  }

  MeshShape mesh_;
  SignalWords words_;
  std::span<const Plan> plans_;
  std::vector<Walker> walkers_;
};

}  // namespace tide::detail

namespace tide {

inline std::vector<std::vector<Rendezvous>> rendezvous(const Collective& collective, std::span<const Plan> plans) {
  return detail::RendezvousWalk(collective, plans).walk();
}

}  // namespace tide
