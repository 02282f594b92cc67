// SPDX-License-Identifier: Apache-2.0
//
// Training, as small as it gets: four ranks gather the parameters, each finds gradients on its own samples, they are
// reduced, and each rank descends on its own f32 masters. The same training without shards gives the same bits.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

using tide::bf16;
using tide::index_t;
using tide_example::expect;

constexpr index_t ranks = 4;
constexpr index_t hidden = 10;  // rows of `in`: 3, 3, 3 and 1
constexpr int steps = 60;

namespace mlp {
inline constexpr auto params = tide::group(       //
    tide::param<bf16>("in.weight", {hidden, 2}),  //
    tide::param<bf16>("in.bias", {hidden}),       //
    tide::param<bf16>("out.weight", {1, hidden}));
}
using Layout = tide::ShardLayout<mlp::params, tide::Mesh<1, ranks>>;

// ---- the model: y = out * tanh(in * x + bias), and its gradients on the samples of one rank
// --------------------------

template <class Weights>
float gradients_of(index_t rank, const Weights& in, const Weights& bias, const Weights& out, std::span<bf16> d_in,
                   std::span<bf16> d_bias, std::span<bf16> d_out) {
  constexpr int samples = 8;
  std::array<float, 2 * hidden> sum_in{};
  std::array<float, hidden> sum_bias{};
  std::array<float, hidden> sum_out{};
  float loss = 0;
  for (int s = 0; s < samples; ++s) {
    const float x = std::sin(static_cast<float>(7 * s + 3 * rank));
    const float y = std::cos(static_cast<float>(5 * s + 2 * rank));
    const float wanted = x * y;
    std::array<float, hidden> active{};
    float got = 0;
    for (std::size_t h = 0; h < hidden; ++h) {
      active[h] = std::tanh(float(in[2 * h]) * x + float(in[2 * h + 1]) * y + float(bias[h]));
      got += float(out[h]) * active[h];
    }
    const float error = got - wanted;
    loss += error * error / samples;
    for (std::size_t h = 0; h < hidden; ++h) {
      const float back = 2 * error / samples * float(out[h]) * (1 - active[h] * active[h]);
      sum_out[h] += 2 * error / samples * active[h];
      sum_bias[h] += back;
      sum_in[2 * h] += back * x;
      sum_in[2 * h + 1] += back * y;
    }
  }
  const auto narrow = [](float value) { return bf16(value); };
  std::ranges::transform(sum_in, d_in.begin(), narrow);
  std::ranges::transform(sum_bias, d_bias.begin(), narrow);
  std::ranges::transform(sum_out, d_out.begin(), narrow);
  return loss;
}

void descend(std::span<float> masters, std::span<const float> gradient) {
  for (std::size_t i = 0; i < masters.size(); ++i) masters[i] -= 0.25F * gradient[i];
}

// The value that parameter number `p` starts from, whoever owns it.
float start(int p, index_t element) { return 0.4F * std::sin(static_cast<float>(100 * p + 13 * element + 1)); }

// ---- without shards
// --------------------------------------------------------------------------------------------------

struct Whole {
  std::array<std::vector<float>, 3> masters{std::vector<float>(2 * hidden), std::vector<float>(hidden),
                                            std::vector<float>(hidden)};
  std::vector<float> losses{};
};

Whole train_whole() {
  Whole model;
  for (int p = 0; p < 3; ++p) {
    auto& values = model.masters[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = start(p, static_cast<index_t>(i));
  }
  for (int step = 0; step < steps; ++step) {
    std::array<std::vector<bf16>, 3> weights;
    for (std::size_t p = 0; p < 3; ++p) {
      for (const float master : model.masters[p]) weights[p].push_back(bf16(master));
    }
    std::array<std::array<std::vector<bf16>, 3>, ranks> gradients;
    std::array<float, ranks> losses{};
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t p = 0; p < 3; ++p) gradients[r][p].resize(weights[p].size());
      losses[r] = gradients_of(static_cast<index_t>(r), weights[0], weights[1], weights[2], gradients[r][0],
                               gradients[r][1], gradients[r][2]);
    }
    for (std::size_t p = 0; p < 3; ++p) {
      std::vector<float> average(weights[p].size());
      for (std::size_t i = 0; i < average.size(); ++i) {
        const auto g = [&](std::size_t rank) { return float(gradients[rank][p][i]); };
        average[i] = ((g(0) + g(1)) + (g(2) + g(3))) * 0.25F;
      }
      descend(model.masters[p], average);
    }
    model.losses.push_back((losses[0] + losses[1]) + (losses[2] + losses[3]));
  }
  return model;
}

// ---- with shards
// -----------------------------------------------------------------------------------------------------

void train_sharded(tide::HostFabric& fabric, const Whole& whole) {
  // snippet: train-step
  tide::MasterShards<Layout> masters{fabric};
  tide::MasterShards<Layout> averages{fabric};
  tide::Gradients<Layout> gradients{fabric};
  tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
  tide::AllGather<Layout, tide::UnicastTransport> gather{fabric, slots};
  tide::ReduceScatter<Layout, tide::CopyEngineReducer<>> reduce{fabric};
  fabric.init();
  // end: train-step

  const index_t rank = fabric.rank().value;
  const auto own = [&](auto shards, int p, index_t row_elements) {
    const index_t first = rank * 3 * row_elements;  // three rows for each rank, as far as they go
    for (std::size_t i = 0; i < shards.size(); ++i) shards[i] = start(p, first + static_cast<index_t>(i));
  };
  own(masters.get<"in.weight">(), 0, 2);
  own(masters.get<"in.bias">(), 1, 1);
  if (rank == 0) own(masters.get<"out.weight">(), 2, hidden);  // one row: all of it is rank 0's

  // snippet: train-loop
  auto stream = fabric.stream();
  std::vector<float> losses;
  for (int step = 0; step < steps; ++step) {
    auto params = gather.enqueue(masters, stream);
    const auto in = params.get<"in.weight">().elements();
    const auto bias = params.get<"in.bias">().elements();
    const auto out = params.get<"out.weight">().elements();
    stream.run([&, in, bias, out] {
      losses.push_back(gradients_of(rank, in, bias, out, gradients.get<"in.weight">().elements(),
                                    gradients.get<"in.bias">().elements(), gradients.get<"out.weight">().elements()));
    });
    params.release(stream);

    const auto ticket = reduce.enqueue(gradients, averages, stream);
    stream.wait(ticket.gradients_free);
    stream.wait(ticket.shards_ready);
    stream.run([&] {
      descend(masters.get<"in.weight">(), averages.get<"in.weight">());
      descend(masters.get<"in.bias">(), averages.get<"in.bias">());
      descend(masters.get<"out.weight">(), averages.get<"out.weight">());
    });
  }
  stream.synchronize();
  // end: train-loop

  const auto same = [&](std::span<const float> shards, const std::vector<float>& all, index_t first) {
    expect(std::equal(shards.begin(), shards.end(), all.begin() + first), "the same bits as without shards");
  };
  same(masters.get<"in.weight">(), whole.masters[0], rank * 3 * 2);
  same(masters.get<"in.bias">(), whole.masters[1], rank * 3);
  same(masters.get<"out.weight">(), whole.masters[2], 0);
  expect(losses.size() == steps, "one loss for each step");
}

int main() {
  const Whole whole = train_whole();
  tide::HostCluster cluster{{1, ranks}};
  cluster.run([&](tide::HostFabric& fabric) { train_sharded(fabric, whole); });
  std::printf("loss %.4f -> %.4f\n", double(whole.losses.front()), double(whole.losses.back()));
  expect(whole.losses.back() < 0.5F * whole.losses.front(), "training helps");
  return tide_example::verdict();
}
