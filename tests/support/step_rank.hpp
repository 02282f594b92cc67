// SPDX-License-Identifier: Apache-2.0
//
// StepRank: one rank's half of a training of the toy model of step_oracle.hpp with ShardedStep. Nothing here blocks;
// `verdict` tells what was wrong, once the streams are synchronized.

#pragma once

#include <tide/fabric/host_port.hpp>
#include <tide/pipeline/sharded_step.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/step_oracle.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace tide_test::step {

/// The parts of a model by name.
template <tide::FixedString... Names>
struct PartNames {};

/// f<Name>(i) for the group of a step that is number `place` of the forward.
template <class Step, tide::FixedString... Names, class F>
void with_group(PartNames<Names...>, index_t place, const F& f) {
  const auto look = [&]<tide::FixedString Name>() {
    for (index_t i = 0; i < Step::template repeat<Name>; ++i) {
      if (Step::template place<Name>(i) == place) f.template operator()<Name>(i);
    }
  };
  (look.template operator()<Names>(), ...);
}

/// f<Name>(i) for all groups of a step, in the order of the forward.
template <class Step, class Names, class F>
void with_all_groups(Names names, const F& f) {
  for (index_t number = 0; number < Step::groups; ++number) with_group<Step>(names, number, f);
}
template <class Step, class Names, class F>
void with_all_groups_backwards(Names names, const F& f) {
  for (index_t number = Step::groups; number-- > 0;) with_group<Step>(names, number, f);
}

/// A whole tensor somewhere: what a kernel gets.
struct Tensor {
  std::byte* at = nullptr;
  index_t elements = 0;
  tide::Element element = tide::Element::bf16;

  [[nodiscard]] float read(index_t i) const {
    if (element == tide::Element::bf16) return static_cast<float>(reinterpret_cast<const tide::bf16*>(at)[i]);
    return reinterpret_cast<const float*>(at)[i];
  }
  void write(index_t i, float value) const {
    if (element == tide::Element::bf16) {
      reinterpret_cast<tide::bf16*>(at)[i] = tide::bf16(value);
    } else {
      reinterpret_cast<float*>(at)[i] = value;
    }
  }
  void poison() const {
    if (elements == 0) return;
    std::memset(at, 0xA5, static_cast<std::size_t>(elements) * tide::size_bytes(element));
  }
};
using Tensors = std::array<Tensor, 4>;  // of a group; unused ones have no elements

/// What the oracle must know of a model: its groups in the order of the forward.
template <class... P>
[[nodiscard]] std::vector<Group> groups_of(tide::detail::PlacedParts<P...>, const typename P::Layout&... layouts) {
  std::vector<Group> groups(static_cast<std::size_t>(tide::detail::PlacedParts<P...>::groups));
  const auto add = [&]<class Part>(Part, const typename Part::Layout& layout) {
    for (index_t i = 0; i < Part::repeat; ++i) {
      Group& group = groups[static_cast<std::size_t>(Part::number(i))];
      group = Group{layout.view().group, !Part::frozen};
      for (const tide::Parameter& parameter : group.view.parameters) {
        bool trains = false;
        for (const tide::Parameter& one : Part::Trainable::group.parameters) trains |= one.name.reads(parameter.name);
        group.trains.push_back(trains && !Part::frozen);
      }
    }
  };
  (add(P{}, layouts), ...);
  return groups;
}

/// What a rank computes and on which streams: all that does not depend on the type of the step.
class StepKernels {
 protected:
  StepKernels(tide::HostPort& fabric, const Recipe& recipe, index_t rank)
      : recipe_(recipe),
        own_(fabric.rank()),
        rank_(rank),
        compute_(fabric.stream()),
        optimizer_(fabric.stream()),
        scribbler_(fabric.stream()) {
    losses_.resize(static_cast<std::size_t>(recipe.steps * recipe.micro_batches));
  }

  void begin(std::uint64_t batch) {
    compute_.run([this, batch] { a_ = first_activation(batch); });
  }

  void forward_of(const Tensors& tensors, index_t number) {
    slowly(compute_, 1);
    compute_.run([this, tensors, number] {
      a_ = folded(a_);
      for (std::size_t p = 0; p < tensors.size(); ++p) {
        for (index_t k = 0; k < tensors[p].elements; ++k) a_ += forward_term(number, p, k, tensors[p].read(k));
      }
    });
  }

  void keep_loss(float* loss) {
    compute_.run([this, loss] { *loss = a_; });
  }

  // Leaves nothing of the parameters: whoever reads them later must have gathered them again.
  void backward_of(const Tensors& tensors, const Tensors& gradients, index_t number, std::uint64_t batch) {
    slowly(compute_, 2);
    compute_.run([this, tensors, gradients, number, batch] {
      for (std::size_t p = 0; p < tensors.size(); ++p) {
        for (index_t k = 0; k < gradients[p].elements; ++k) {
          gradients[p].write(k, gradient_of(batch, number, p, k, a_, tensors[p].read(k)));
        }
        tensors[p].poison();
      }
    });
  }

  void poison(tide::HostStream& stream, const Tensors& tensors) {
    stream.run([tensors] {
      for (const Tensor& one : tensors) one.poison();
    });
  }

  void wait_for_scribbles(const std::byte* memory) { compute_.wait(scribbled_[memory]); }
  void scribble(const tide::ReduceTicket& ticket, const Tensors& gradients, const std::byte* memory) {
    if (!recipe_.scribble) return;
    scribbler_.wait(ticket.gradients_free);
    poison(scribbler_, gradients);
    scribbled_[memory] = scribbler_.record();
  }

  void slowly(tide::HostStream& stream, int n) {
    if (!recipe_.slow_readers) return;
    const std::uint64_t bits = mix(recipe_.seed, ++calls_, static_cast<std::uint64_t>(rank_), 9);
    if (bits % 4 != 0) return;
    // Now and then so long that whatever does not wait for the reader comes by.
    const int scale = bits / 256 % 8 == 0 ? 60 : 1;
    const std::chrono::microseconds pause(static_cast<int>(bits / 4 % 50) * n * scale);
    stream.run([pause] { std::this_thread::sleep_for(pause); });
  }

  [[nodiscard]] float* loss_at(int step, int micro) {
    return &losses_[static_cast<std::size_t>(step * recipe_.micro_batches + micro)];
  }

  Recipe recipe_;
  tide::Rank own_;  // in the fabric of the shards
  index_t rank_;    // of all
  tide::HostStream compute_;
  tide::HostStream optimizer_;
  tide::HostStream scribbler_;
  float evaluated_ = 0;
  float norm_ = 0;

 private:
  std::map<const std::byte*, tide::Event> scribbled_;  // by gradient memory
  std::vector<float> losses_;
  float a_ = 0;
  std::uint64_t calls_ = 0;
};

template <class Step, class Names>
class StepRank : StepKernels {
 public:
  StepRank(tide::HostPort& fabric, Step& step, const Oracle& oracle, const Recipe& recipe, index_t rank)
      : StepKernels(fabric, recipe, rank), step_(&step), oracle_(&oracle) {
    if (recipe.scale != 0) step.scale(recipe.scale);
  }

  /// Initial values, from the optimizer's stream.
  void load() {
    step_->load(optimizer_, [&](auto group) {
      const index_t number = number_of(group.part(), group.index());
      optimizer_.run([=, this] { fill(group, number); });
    });
  }

  void train(int step) {
    for (int micro = 0; micro < recipe_.micro_batches; ++micro) {
      const std::uint64_t batch = batch_of(rank_, step, micro);
      if (recipe_.evaluate && step % 2 == 0) {
        step_->start(tide::Pass::evaluate);
        forward(batch, &evaluated_);
      }
      const bool last = micro + 1 == recipe_.micro_batches;
      if (!last) step_->start(tide::Pass::accumulate);
      if (last && step % 3 == 0) step_->start();
      forward(batch, loss_at(step, micro));
      backward(step, micro, batch);
    }
    slowly(optimizer_, 3);
    if (step % 2 == 1) {  // every gradient is read, as for a norm
      step_->inspect(optimizer_, [&](auto group) {
        optimizer_.run([=, this] {
          group.for_each([this](const tide::Parameter&, std::span<float>, std::span<float> reduced) {
            for (const float value : reduced) norm_ += value * value;
          });
        });
      });
    }
    step_->update(optimizer_, [&](auto group) {
      optimizer_.run([=] {
        group.for_each([](const tide::Parameter&, std::span<float> masters, std::span<float> reduced) {
          for (std::size_t i = 0; i < masters.size(); ++i) {
            masters[i] = descended(masters[i], reduced[i]);
            reduced[i] = -1e30F;  // nobody may read it again
          }
        });
      });
    });
  }

  void synchronize() {
    compute_.synchronize();
    optimizer_.synchronize();
    scribbler_.synchronize();
  }

  /// Compares losses and the own shards.  @pre synchronized
  [[nodiscard]] std::string verdict() {
    std::string text;
    const auto differ = [&](const std::string& what, float found, float expected) {
      if (std::memcmp(&found, &expected, sizeof(float)) == 0 || text.size() > 500) return;
      text += what + ": " + std::to_string(found) + " instead of " + std::to_string(expected) + "\n";
    };
    for (int step = 0; step < recipe_.steps; ++step) {
      for (int micro = 0; micro < recipe_.micro_batches; ++micro) {
        differ("loss of step " + std::to_string(step), *loss_at(step, micro), oracle_->loss(rank_, step, micro));
      }
    }
    step_->load(optimizer_, [&](auto group) {
      const index_t number = number_of(group.part(), group.index());
      each_own(group, number, [&](std::size_t p, index_t i, const Tensor& shard, index_t at) {
        const float w = oracle_->weights()[static_cast<std::size_t>(number)][p][static_cast<std::size_t>(i)];
        differ("group " + std::to_string(number) + ", parameter " + std::to_string(p), shard.read(at),
               rounded(shard.element, w));
      });
    });
    return text;
  }

 private:
  template <class Handle>
  [[nodiscard]] Tensors tensors_of(const Handle& handle, index_t number) const {
    Tensors tensors;
    const tide::GroupView& group = oracle_->groups()[static_cast<std::size_t>(number)].view;
    for (index_t p = 0; p < group.size(); ++p) {
      const tide::ParameterIndex index{p};
      tensors[static_cast<std::size_t>(p)] = {handle.at(index), group[index].shape.elements(), group[index].gathered};
    }
    return tensors;
  }

  // The gradients of a backward, by the parameters' positions in the whole group; frozen ones have none.
  template <class Handle>
  [[nodiscard]] Tensors gradients_of(const Handle& handle, index_t number) const {
    Tensors tensors;
    const Group& group = oracle_->groups()[static_cast<std::size_t>(number)];
    for (index_t p = 0; p < group.view.size(); ++p) {
      if (group.trains[static_cast<std::size_t>(p)] == 0) continue;
      const tide::Parameter& parameter = group.view[tide::ParameterIndex{p}];
      tensors[static_cast<std::size_t>(p)] = {handle.gradient(tide::ParameterIndex{p}), parameter.shape.elements(),
                                              parameter.gradient};
    }
    return tensors;
  }

  // Calls f(parameter, element of the whole, the own shard, element of the shard).
  template <class UpdateGroup, class F>
  void each_own(const UpdateGroup& update, index_t number, const F& f) const {
    const Group& group = oracle_->groups()[static_cast<std::size_t>(number)];
    for (std::size_t p = 0; p < group.trains.size(); ++p) {
      const tide::Parameter& parameter = group.view.parameters[p];
      Tensor shard;
      shard.element = group.masters ? tide::Element::f32 : parameter.gathered;
      if constexpr (requires { update.masters(); }) {
        shard.at = update.masters().bytes_of(tide::ParameterIndex{static_cast<index_t>(p)}).data();
      } else {
        shard.at = update.shards().bytes_of(tide::ParameterIndex{static_cast<index_t>(p)}).data();
      }
      const std::vector<index_t> rows = oracle::rows_of(parameter, recipe_.ranks);
      index_t first = 0;
      for (index_t r = 0; r < own_.value; ++r) first += rows[static_cast<std::size_t>(r)];
      const index_t width = parameter.shape.product(1, parameter.shape.rank);
      const index_t count = rows[static_cast<std::size_t>(own_.value)] * width;
      for (index_t i = 0; i < count; ++i) f(p, first * width + i, shard, i);
    }
  }

  template <class UpdateGroup>
  void fill(const UpdateGroup& update, index_t number) const {
    each_own(update, number, [number](std::size_t p, index_t i, const Tensor& shard, index_t at) {
      shard.write(at, start_of(number, p, i));
    });
  }

  [[nodiscard]] index_t number_of(std::string_view part, index_t index) const {
    index_t found = -1;
    for (index_t number = 0; number < Step::groups; ++number) {
      with_group<Step>(Names{}, number, [&]<tide::FixedString Name>(index_t i) {
        if (Name.view() == part && i == index) found = number;
      });
    }
    return found;
  }

  void forward(std::uint64_t batch, float* loss) {
    begin(batch);
    for (index_t number = 0; number < Step::groups; ++number) {
      with_group<Step>(Names{}, number, [&]<tide::FixedString Name>(index_t i) {
        auto group = step_->template forward<Name>(compute_, i);
        forward_of(tensors_of(group, number), number);
        group.release();
      });
    }
    keep_loss(loss);
  }

  void backward(int step, int micro, std::uint64_t batch) {
    for (index_t number = Step::groups; number-- > 0;) {
      with_group<Step>(Names{}, number, [&]<tide::FixedString Name>(index_t i) {
        auto group = step_->template backward<Name>(compute_, i);
        const Tensors tensors = tensors_of(group, number);
        if constexpr (requires { group.reduce(); }) {
          const Tensors gradients = gradients_of(group, number);
          const std::byte* const memory = group.gradients().data();
          wait_for_scribbles(memory);
          backward_of(tensors, gradients, number, batch);
          for (std::size_t p = 0; p < tensors.size(); ++p) {
            if (gradients[p].elements == 0 || !recipe_.is_missing(rank_, step, micro, number, p)) continue;
            poison(compute_, {gradients[p]});  // what it holds does not count
            group.missing(tide::ParameterIndex{static_cast<index_t>(p)});
          }
          scribble(group.reduce(), gradients, memory);
        } else {
          poison(compute_, tensors);
          group.release();
        }
      });
    }
  }

  Step* step_;
  const Oracle* oracle_;
};

}  // namespace tide_test::step
