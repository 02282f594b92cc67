// SPDX-License-Identifier: Apache-2.0
//
// The ledger of calls: the n-th call of every rank must be the same. It takes no lock.

#pragma once

#include <tide/core/index.hpp>             // Rank
#include <tide/core/text.hpp>              // text
#include <tide/fabric/detail/failure.hpp>  // Refusal
#include <tide/fabric/fabric.hpp>          // CallNote

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// That a rank has ended, or closed its fabric, and `what` somebody waits for.
[[nodiscard]] inline std::string programs_end_apart(Rank gone, bool closed, const std::string& what) {
  return text({"tide::Fabric: the programs of all ranks must make the same calls before they end; rank ", gone.value,
               closed ? " closed its fabric" : " ended", ", and ", what, "."});
}

class CallLedger {
 public:
  // What became of a call: made, refused by another rank, or different from what others called there.
  struct Entered {
    std::optional<Refusal> refused{};
    std::string differs{};  // says in what, where it is
  };
  // What all ranks say of a call, and whether one of them has begun it already: then only a failure can reach that one.
  struct Refused {
    Refusal said;
    bool begun;
  };

  explicit CallLedger(index_t ranks) : made_(static_cast<std::size_t>(ranks), 0) {}

  // How many calls a rank has made.
  [[nodiscard]] std::uint64_t made(Rank rank) const noexcept { return made_[static_cast<std::size_t>(rank.value)]; }

  // Records the next call of a rank.  @param label  (Rank, program) -> text
  template <class Label>
  [[nodiscard]] Entered enter(Rank rank, std::int32_t program, std::int32_t slot, const CallNote& note,
                              const Label& label) {
    Call& call = next_call(rank);
    Entered entered;
    if (call.refusal) {
      entered.refused = call.refusal;
    } else if (call.first_rank < 0) {
      call = {program, slot, note, rank.value, 1, std::nullopt};
    } else if (call.program != program || call.slot != slot || call.note != note) {
      const bool apart = call.note != note;
      const auto describe = [&](Rank of, std::int32_t p, std::int32_t s, const CallNote& n) {
        const std::string where = apart && !n.at.empty() ? text({", ", std::string(n.at), " ", n.count, ","}) : "";
        return text({label(of, p), " in slot ", s, where, " on rank ", of.value});
      };
      entered.differs = text({"tide::Fabric: all ranks must make the same calls in the same order; call ", made(rank),
                              " is ", describe(Rank{call.first_rank}, call.program, call.slot, call.note), " and ",
                              describe(rank, program, slot, note), "."});
      return entered;
    } else {
      ++call.launched;
    }
    retire(rank);
    return entered;
  }

  // Refuses the next call of a rank, on all ranks: they all say the first refusal of the call.
  [[nodiscard]] Refused refuse(Rank rank, Refusal refusal) {
    Call& call = next_call(rank);
    if (!call.refusal) call.refusal = std::move(refusal);
    Refused refused{*call.refusal, call.launched > 0};
    retire(rank);
    return refused;
  }

 private:
  struct Call {
    std::int32_t program = -1;
    std::int32_t slot = 0;
    CallNote note{};
    std::int32_t first_rank = -1;
    index_t launched = 0;
    std::optional<Refusal> refusal;
  };

  // The entry of a rank's next call. Entries are those that some rank has not made yet: a ring that grows to the
  // farthest that ranks run apart, which the queues of their streams bound.
  Call& next_call(Rank rank) {
    const std::uint64_t index = made(rank);
    if (index - first_call_ >= calls_.size()) {
      std::vector<Call> larger(calls_.size() * 2);
      for (std::uint64_t i = first_call_; i < index; ++i) larger[i % larger.size()] = calls_[i % calls_.size()];
      calls_ = std::move(larger);
    }
    return calls_[index % calls_.size()];
  }

  void retire(Rank rank) {
    ++made_[static_cast<std::size_t>(rank.value)];
    const std::uint64_t slowest = *std::min_element(made_.begin(), made_.end());
    for (; first_call_ < slowest; ++first_call_) calls_[first_call_ % calls_.size()] = {};
  }

  std::vector<std::uint64_t> made_;  // by rank
  std::vector<Call> calls_ = std::vector<Call>(64);
  std::uint64_t first_call_ = 0;
};

}  // namespace tide::detail
