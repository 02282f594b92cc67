// SPDX-License-Identifier: Apache-2.0
//
// Which signal or put meets which wait. A word has one source (a lane of a rank), its values grow in a run from 1 to at
// most `per_run`, and by `per_run` from run to run. A wait names a value that is raised: a later one would meet it too,
// but then the two ranks would not agree on what they wait for. Only net lanes wait for other nodes: a network may hand
// out a signal once, and serve waits in one order with puts.

#pragma once

#include <tide/plan/detail/flat_table.hpp>     // FlatTable
#include <tide/plan/detail/op_graph.hpp>       // OpGraph
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

class WordMatch {
 public:
  // @pre every signal, put and wait names a word
  WordMatch(const Collective& collective, OpGraph& graph, VerifyReport& report)
      : words_(collective.words()), graph_(&graph), report_(&report) {
    count();
    place();
  }

  // Judges every word, then makes each wait follow its signal.
  void match() {
    for (const Word& word : used_) {
      if (word.raises > 0) check(word);
    }
    if (!report_->empty()) return;
    for (const Word& word : used_) {
      for (const Use& wait : waits(word)) word.raises > 0 ? meet(word, wait) : unmet(word, wait);
    }
  }

 private:
  // A signal, put or wait, with what is asked of it often.
  struct Use {
    std::uint32_t plan;
    std::uint32_t seq;
    index_t value;
    std::uint32_t per_run;
    std::uint16_t lane;
  };

  // A word that is used, and where its uses are: first what raises it, then what waits for it.
  struct Word {
    std::int32_t owner;  // the rank that has it
    std::int32_t word;
    std::size_t first;
    std::size_t raises;
    std::size_t waits;
  };

  [[nodiscard]] std::span<const Use> signals(const Word& word) const noexcept {
    return std::span(uses_).subspan(word.first, word.raises);
  }
  [[nodiscard]] std::span<const Use> waits(const Word& word) const noexcept {
    return std::span(uses_).subspan(word.first + word.raises, word.waits);
  }

  // Calls f(op, owner of the word, word, use) for what raises a word or waits for it.
  template <class F>
  void for_each_use(F f) const {
    const std::span<const Plan> plans = graph_->plans();
    for (std::size_t p = 0; p < plans.size(); ++p) {
      for (std::size_t s = 0; s < plans[p].ops.size(); ++s) {
        const Op& op = plans[p].ops[s];
        if (!op.raises() && op.kind != OpKind::wait) continue;
        const Op::Raise raise = op.raises() ? op.raise() : Op::Raise{op.word(), op.value(), op.per_run()};
        const auto owner = op.raises() ? op.peer : static_cast<std::int32_t>(p);
        f(op, owner, static_cast<std::int32_t>(raise.word),
          Use{static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(s), raise.value,
              static_cast<std::uint32_t>(raise.per_run), op.lane});
      }
    }
  }

  // Finds the words, and how often each is used: plans have millions of uses and few words.
  void count() {
    for_each_use([&](const Op& op, std::int32_t owner, std::int32_t word, const Use&) {
      const auto fresh = static_cast<std::uint32_t>(used_.size());
      const std::uint32_t i = place_.at(key(owner, word), fresh);
      if (i == fresh) used_.push_back({owner, word, 0, 0, 0});
      ++(op.raises() ? used_[i].raises : used_[i].waits);
    });
  }

  // Puts the uses of each word together, in the order of their issue.
  void place() {
    std::sort(used_.begin(), used_.end(),
              [](const Word& a, const Word& b) { return a.owner != b.owner ? a.owner < b.owner : a.word < b.word; });
    struct Next {
      std::size_t raise;
      std::size_t wait;
    };
    std::vector<Next> next(used_.size());
    std::size_t all = 0;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      Word& word = used_[i];
      word.first = all;
      next[i] = {all, all + word.raises};
      all += word.raises + word.waits;
      place_.at(key(word.owner, word.word), 0) = static_cast<std::uint32_t>(i);
    }
    uses_.resize(all);
    for_each_use([&](const Op& op, std::int32_t owner, std::int32_t word, const Use& use) {
      Next& at = next[*place_.find(key(owner, word))];
      uses_[op.raises() ? at.raise++ : at.wait++] = use;
    });
  }

  [[nodiscard]] static std::uint64_t key(std::int32_t owner, std::int32_t word) noexcept {
    return (static_cast<std::uint64_t>(owner) << 32) | static_cast<std::uint64_t>(word);
  }

  [[nodiscard]] LaneKind lane_kind(const Use& use) const { return graph_->plans()[use.plan].lanes[use.lane].kind; }
  [[nodiscard]] std::string name(const Word& word) const { return report_->word(word.owner, word.word); }
  [[nodiscard]] Side side(const Use& use) const { return report_->side(use.plan, use.seq); }
  [[nodiscard]] std::string who(const Use& use) const { return report_->doing(side(use)); }

  void fault(Law law, const Use& first, const std::string& text, const Use& second, const std::string& more) {
    report_->add(law, who(first) + " " + text + " " + who(second) + more, side(first), side(second));
  }

  // Judges what raises a word.
  void check(const Word& word) {
    const Use& first = signals(word)[0];
    if (words_.kind(word.word) == WordKind::event && word.owner != static_cast<std::int32_t>(first.plan)) {
      report_->add(Law::agreement, who(first) + " raises " + name(word) + "; an event is of the own rank", side(first));
      return;
    }
    index_t last = 0;
    for (const Use& now : signals(word)) {
      if (now.plan != first.plan || now.lane != first.lane) {
        return fault(Law::agreement, first, "and", now, " both raise " + name(word) + "; a word has one source");
      }
      if (now.per_run != first.per_run) {
        return fault(Law::agreement, first,
                     "lets " + name(word) + " grow by " + std::to_string(first.per_run) + " in a run,", now,
                     " by " + std::to_string(now.per_run));
      }
      if (now.value < 1 || now.value > now.per_run) {
        report_->add(Law::progress,
                     who(now) + " raises " + name(word) + " to " + std::to_string(now.value) +
                         "; in a run it goes from 1 to " + std::to_string(now.per_run),
                     side(now));
        return;
      }
      if (now.value <= last) {
        report_->add(Law::progress,
                     who(now) + " raises " + name(word) + " to " + std::to_string(now.value) + " when it is " +
                         std::to_string(last) + "; words only grow",
                     side(now));
        return;
      }
      last = now.value;
    }
  }

  void meet(const Word& word, const Use& wait) {
    const std::span<const Use> raises = signals(word);
    const Use& first = raises[0];
    const index_t per_run = wait.per_run;
    if (graph_->wire(first.plan, first.seq, 0) != no_node && lane_kind(wait) != LaneKind::net) {
      return fault(Law::agreement, wait, "waits for another node, which only a net lane may, by", first, "");
    }
    if (wait.per_run != first.per_run) {
      return fault(Law::agreement, wait,
                   "takes " + name(word) + " to grow by " + std::to_string(per_run) + " in a run,", first,
                   " by " + std::to_string(first.per_run));
    }
    if (wait.value > per_run || wait.value < INT64_MIN / 2) return unmet(word, wait);
    // A value that is 0 or less counts back into earlier runs; all runs raise the same values.
    const index_t back = (per_run - wait.value) / per_run;
    const index_t value = wait.value + back * per_run;
    // Most words go up in steps of one.
    const auto guess = static_cast<std::size_t>(value - 1);
    const auto signal = guess < raises.size() && raises[guess].value == value
                            ? raises.begin() + static_cast<std::ptrdiff_t>(guess)
                            : std::lower_bound(raises.begin(), raises.end(), value,
                                               [](const Use& s, index_t v) { return s.value < v; });
    if (signal == raises.end() || signal->value != value) return unmet(word, wait);
    for (index_t run = back; run < unrolled_runs; ++run) {  // before, it is met from the start
      graph_->set_extra(graph_->node(wait.plan, wait.seq, run), graph_->raise(signal->plan, signal->seq, run - back));
    }
  }

  void unmet(const Word& word, const Use& wait) {
    std::string text = who(wait) + " waits for " + name(word) + " >= " + std::to_string(wait.value) + ", ";
    if (word.raises == 0) {
      report_->add(Law::progress, text + "which nobody raises", side(wait));
    } else {
      const Use& last = signals(word).back();
      text += "which no signal raises to just that; the last is " + who(last) + ", to " + std::to_string(last.value) +
              " of " + std::to_string(last.per_run) + " in a run";
      report_->add(Law::progress, text, side(wait), side(last));
    }
  }

  SignalWords words_;
  OpGraph* graph_;
  VerifyReport* report_;
  FlatTable<std::uint32_t> place_;  // (owner, word): where in used_
  std::vector<Word> used_;          // in order
  std::vector<Use> uses_;
};

}  // namespace tide::detail
