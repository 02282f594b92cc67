// SPDX-License-Identifier: Apache-2.0
//
// A mixture of experts: parts that take turns, parameters found by number, experts without a token, micro-batches, a
// gradient norm over all ranks, and a checkpoint that goes on bit for bit.

#include "support/expect.hpp"

#include <tide/fabric/host_cluster.hpp>
#include <tide/pipeline/all_reduce.hpp>
#include <tide/pipeline/sharded_step.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

using tide::bf16;
using tide::index_t;
using tide_example::expect;

constexpr index_t width = 6;
constexpr index_t hidden = 5;
constexpr index_t experts = 4;
constexpr index_t layers = 2;
constexpr index_t samples = 6;  // of a rank in a micro-batch
constexpr int micro_batches = 2;
constexpr int steps = 80;

// snippet: moe-model
namespace net {
inline constexpr auto mixer = tide::group(tide::param<bf16>("weight", {width, width}));
inline constexpr auto experts_of_layer = tide::group(      //
    tide::param<bf16>("router.temperature", {1}),          // not trained
    tide::param<bf16>("router.weight", {experts, width}),  //
    tide::repeat<experts>("experts.{}.", tide::param<bf16>("up", {hidden, width}),
                          tide::param<bf16>("down", {width, hidden})));
inline constexpr auto output = tide::group(tide::param<bf16>("weight", {2, width}));
}  // namespace net

using Mesh = tide::Mesh<tide::dynamic, tide::dynamic>;  // the same program on any number of nodes and ranks
using Inter = tide::RdmaDoublingTransport<>;            // which may be one node
using Experts =
    tide::Part<"experts", tide::ShardLayout<net::experts_of_layer, Mesh>, tide::Frozen<"router.temperature">>;
using Model =
    tide::Parts<tide::Layers<tide::Repeat<layers>, tide::Part<"mixer", tide::ShardLayout<net::mixer, Mesh>>, Experts>,
                tide::Part<"output", tide::ShardLayout<net::output, Mesh>>>;
using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<tide::Burst, tide::Accumulate>,
                               Inter, tide::SlotReuse, tide::Prefetch<2>>;
using Sums = tide::AllReduce<tide::Depth<1>, tide::UnicastTransport, tide::CopyEngineReducer<>, Inter>;
// end: moe-model

template <index_t N>
using Column = std::array<float, static_cast<std::size_t>(N)>;
using Vector = Column<width>;
template <index_t Rows, index_t Columns>
using Matrix = tide::TensorView<bf16, Rows, Columns>;

// y = weight x
template <index_t Rows, index_t Columns>
Column<Rows> times(const Matrix<Rows, Columns>& weight, const Column<Columns>& x) {
  Column<Rows> y{};
  for (index_t i = 0; i < Rows; ++i) {
    for (index_t k = 0; k < Columns; ++k) y[std::size_t(i)] += float(weight(i, k)) * x[std::size_t(k)];
  }
  return y;
}
// dx += weight^T dy
template <index_t Rows, index_t Columns>
void back(const Matrix<Rows, Columns>& weight, const Column<Rows>& dy, Column<Columns>& dx) {
  for (index_t i = 0; i < Rows; ++i) {
    for (index_t k = 0; k < Columns; ++k) dx[std::size_t(k)] += float(weight(i, k)) * dy[std::size_t(i)];
  }
}
// The gradient of a weight, added up over samples in fp32.
template <index_t Rows, index_t Columns>
struct Sum {
  std::array<float, std::size_t(Rows* Columns)> values{};

  void add(const Column<Rows>& dy, const Column<Columns>& x) {
    for (std::size_t i = 0; i < Rows; ++i) {
      for (std::size_t k = 0; k < Columns; ++k) values[i * Columns + k] += dy[i] * x[k];
    }
  }
  void store(const Matrix<Rows, Columns>& gradient) const {
    std::transform(values.begin(), values.end(), gradient.elements().begin(), [](float v) { return bf16(v); });
  }
};

// What the functions on a rank's stream work on.
struct Rank {
  std::array<std::array<Vector, layers + 1>, samples> x{};  // before each layer
  std::array<std::array<Vector, layers>, samples> mixed{};  // between mixer and experts
  std::array<Vector, samples> d{};
  std::array<std::array<bool, experts>, layers> used{};
  float loss = 0;
};

void start(Rank& rank, index_t r, index_t ranks, int step, int micro) {
  for (index_t s = 0; s < samples; ++s) {
    const float angle = 0.37F * float(s + samples * (r + ranks * (micro + micro_batches * step)));
    rank.x[std::size_t(s)][0] = {std::cos(angle), std::sin(angle), 1, 0, 0, 0};
  }
  rank.used = {};
  if (micro == 0) rank.loss = 0;
}

void mixer_forward(Rank& rank, std::size_t layer, const Matrix<width, width>& weight) {
  for (std::size_t s = 0; s < samples; ++s) {
    Vector y = times(weight, rank.x[s][layer]);
    for (std::size_t i = 0; i < width; ++i) y[i] = rank.x[s][layer][i] + std::tanh(y[i]);
    rank.mixed[s][layer] = y;
  }
}
void mixer_backward(Rank& rank, std::size_t layer, const Matrix<width, width>& weight,
                    const Matrix<width, width>& gradient) {
  Sum<width, width> sum;
  for (std::size_t s = 0; s < samples; ++s) {
    Vector d = times(weight, rank.x[s][layer]);
    for (std::size_t i = 0; i < width; ++i) d[i] = rank.d[s][i] * (1 - std::tanh(d[i]) * std::tanh(d[i]));
    sum.add(d, rank.x[s][layer]);
    back(weight, d, rank.d[s]);
  }
  sum.store(gradient);
}

// One expert for each token, and how sure the router is of it.
struct Route {
  Column<experts> p{};
  std::size_t expert = 0;
};
Route route(const Matrix<experts, width>& router, float temperature, const Vector& x) {
  Route route{times(router, x), 0};
  float sum = 0;
  for (float& p : route.p) sum += p = std::exp(temperature * p);
  for (float& p : route.p) p /= sum;
  route.expert = std::size_t(std::max_element(route.p.begin(), route.p.end()) - route.p.begin());
  return route;
}

// snippet: moe-by-number
struct Weights {
  template <class Handle>
  explicit Weights(const Handle& handle)
      : temperature(handle.template get<"router.temperature">()), router(handle.template get<"router.weight">()) {
    for (index_t e = 0; e < experts; ++e) {
      up.push_back(handle.template get<"experts.{}.up">(e));
      down.push_back(handle.template get<"experts.{}.down">(e));
    }
  }

  tide::TensorView<bf16, 1> temperature;
  Matrix<experts, width> router;
  std::vector<Matrix<hidden, width>> up;
  std::vector<Matrix<width, hidden>> down;
};
// end: moe-by-number

void experts_forward(Rank& rank, std::size_t layer, const Weights& weights) {
  for (std::size_t s = 0; s < samples; ++s) {
    const Vector& x = rank.mixed[s][layer];
    const auto [p, e] = route(weights.router, float(weights.temperature(0)), x);
    auto h = times(weights.up[e], x);
    for (float& v : h) v = std::tanh(v);
    const Vector y = times(weights.down[e], h);
    for (std::size_t i = 0; i < width; ++i) rank.x[s][layer + 1][i] = x[i] + p[e] * y[i];
    rank.used[layer][e] = true;
  }
}

struct Gradients {
  Matrix<experts, width> router;
  std::vector<Matrix<hidden, width>> up;
  std::vector<Matrix<width, hidden>> down;
};

void experts_backward(Rank& rank, std::size_t layer, const Weights& weights, const Gradients& gradients) {
  Sum<experts, width> d_router;
  std::array<Sum<hidden, width>, experts> d_up;
  std::array<Sum<width, hidden>, experts> d_down;
  const float temperature = float(weights.temperature(0));
  for (std::size_t s = 0; s < samples; ++s) {
    const Vector& x = rank.mixed[s][layer];
    const auto [p, e] = route(weights.router, temperature, x);
    auto h = times(weights.up[e], x);
    for (float& v : h) v = std::tanh(v);
    const Vector y = times(weights.down[e], h);
    Vector dy{};
    float dp = 0;
    for (std::size_t i = 0; i < width; ++i) {
      dy[i] = p[e] * rank.d[s][i];
      dp += y[i] * rank.d[s][i];
    }
    d_down[e].add(dy, h);
    Column<hidden> dh{};
    back(weights.down[e], dy, dh);
    for (std::size_t i = 0; i < hidden; ++i) dh[i] *= 1 - h[i] * h[i];
    d_up[e].add(dh, x);
    back(weights.up[e], dh, rank.d[s]);
    Column<experts> dl{};
    for (std::size_t j = 0; j < experts; ++j) dl[j] = temperature * p[e] * ((j == e ? 1.0F : 0.0F) - p[j]) * dp;
    d_router.add(dl, x);
    back(weights.router, dl, rank.d[s]);
  }
  d_router.store(gradients.router);
  for (std::size_t e = 0; e < experts; ++e) {
    if (!rank.used[layer][e]) continue;  // declared missing
    d_up[e].store(gradients.up[e]);
    d_down[e].store(gradients.down[e]);
  }
}

// Turns each vector by a quarter; also the backward, into `rank.d`.
void output_both(Rank& rank, const Matrix<2, width>& weight, const Matrix<2, width>& gradient) {
  Sum<2, width> sum;
  for (std::size_t s = 0; s < samples; ++s) {
    const Vector& x = rank.x[s][layers];
    Column<2> d = times(weight, x);
    d[0] += rank.x[s][0][1];
    d[1] -= rank.x[s][0][0];
    rank.loss += (d[0] * d[0] + d[1] * d[1]) / (samples * micro_batches);
    for (float& v : d) v *= 2.0F / (samples * micro_batches);
    sum.add(d, x);
    rank.d[s] = {};
    back(weight, d, rank.d[s]);
  }
  sum.store(gradient);
}

float start_value(std::string_view part, index_t place, const tide::Piece& piece, std::size_t i) {
  if (part == "experts" && piece.parameter.value == 0) return 2;  // the temperature
  return 0.4F * std::sin(float(37 * (piece.first + index_t(i)) + 11 * piece.parameter.value + 5 * place));
}

// The own shards of all groups, as a file of a rank holds them.
using Checkpoint = std::vector<std::vector<float>>;

void train(tide::HostFabric& fabric, int from, int to, Checkpoint& checkpoint, std::vector<float>& losses,
           int& missing) {
  Step step{fabric};
  Sums sums{fabric, 2, "norm and loss"};
  sums.scale(1);
  fabric.init();
  auto compute = fabric.stream();

  // snippet: moe-checkpoint
  std::size_t next = 0;
  step.load(compute, [&](auto group) {
    // By value: it runs later. A function may keep the group, which points into the fabric's memory.
    compute.run([&checkpoint, from, place = next++, group] {
      std::size_t at = 0;
      group.masters().for_each([&](const tide::Piece& piece, std::span<float> own) {  // frozen ones, too
        for (std::size_t i = 0; i < own.size(); ++i) {
          own[i] = from > 0 ? checkpoint[place][at++] : start_value(group.part(), index_t(place), piece, i);
        }
      });
    });
  });
  // end: moe-checkpoint

  Rank rank;
  float squares = 0;
  for (int n = from; n < to; ++n) {
    for (int micro = 0; micro < micro_batches; ++micro) {
      // snippet: moe-micro-batch
      step.start(micro + 1 < micro_batches ? tide::Pass::accumulate : tide::Pass::last);
      compute.run([&rank, r = fabric.rank().value, ranks = fabric.mesh().ranks(), n, micro] {
        start(rank, r, ranks, n, micro);
      });
      for (index_t i = 0; i < layers; ++i) {
        auto mixer = step.forward<"mixer">(compute, i);
        compute.run([&rank, i, weight = mixer.get<"weight">()] { mixer_forward(rank, std::size_t(i), weight); });
        mixer.release();
        auto block = step.forward<"experts">(compute, i);
        compute.run([&rank, i, weights = Weights(block)] { experts_forward(rank, std::size_t(i), weights); });
        block.release();
      }
      step.forward<"output">(compute).release();  // its forward is part of its backward
      compute.synchronize();                      // the host has to know which experts had a token

      auto output = step.backward<"output">(compute);
      compute.run([&rank, weight = output.get<"weight">(), gradient = output.gradient<"weight">()] {
        output_both(rank, weight, gradient);
      });
      output.reduce();
      for (index_t i = layers; i-- > 0;) {
        auto block = step.backward<"experts">(compute, i);
        Gradients gradients{block.gradient<"router.weight">(), {}, {}};
        for (index_t e = 0; e < experts; ++e) {
          gradients.up.push_back(block.gradient<"experts.{}.up">(e));
          gradients.down.push_back(block.gradient<"experts.{}.down">(e));
          if (rank.used[std::size_t(i)][std::size_t(e)]) continue;
          block.missing<"experts.{}.up">(e);  // zeros, which this rank need not write
          block.missing<"experts.{}.down">(e);
          ++missing;
        }
        compute.run([&rank, i, weights = Weights(block), gradients] {
          experts_backward(rank, std::size_t(i), weights, gradients);
        });
        block.reduce();
        auto mixer = step.backward<"mixer">(compute, i);
        compute.run([&rank, i, weight = mixer.get<"weight">(), gradient = mixer.gradient<"weight">()] {
          mixer_backward(rank, std::size_t(i), weight, gradient);
        });
        mixer.reduce();
      }
      // end: moe-micro-batch
    }

    // snippet: moe-norm
    step.inspect(compute, [&](auto group) {
      compute.run([&squares, group] {
        group.for_each([&](const tide::Parameter&, std::span<float>, std::span<float> gradient) {
          for (const float g : gradient) squares += g * g;
        });
      });
    });
    compute.run([&sums, &squares, &rank] {  // a rank has the squares of its shards only
      sums.buffer()[0] = squares;
      sums.buffer()[1] = rank.loss;
      squares = 0;
    });
    compute.wait(sums.enqueue(compute));
    compute.run([&sums, &losses, ranks = fabric.mesh().ranks()] { losses.push_back(sums.buffer()[1] / float(ranks)); });
    step.update(compute, [&, n](auto group) {
      compute.run([group, n, &sums] {
        const float norm = std::sqrt(sums.buffer()[0]);
        const float rate = 0.25F * (1 + std::cos(std::numbers::pi_v<float> * float(n) / steps));
        const float scale = rate * std::min(1.0F, 0.5F / norm);
        group.for_each([&](const tide::Parameter&, std::span<float> masters, std::span<float> gradient) {
          for (std::size_t k = 0; k < masters.size(); ++k) masters[k] -= scale * gradient[k];
        });
      });
    });
    // end: moe-norm
  }

  // snippet: moe-save
  checkpoint.clear();
  step.save(compute, [&](auto group) {
    compute.run([&checkpoint, group] {
      std::vector<float>& values = checkpoint.emplace_back();
      group.masters().for_each(
          [&](const tide::Piece&, std::span<float> own) { values.insert(values.end(), own.begin(), own.end()); });
    });
  });
  compute.synchronize();  // before the locals go that functions refer to, also where a rank returns early
  // end: moe-save
}

int main() {
  constexpr std::size_t ranks = 4;
  std::array<Checkpoint, ranks> whole;
  std::array<Checkpoint, ranks> halves;
  std::array<std::vector<float>, ranks> losses;
  std::array<std::vector<float>, ranks> again;
  std::array<int, ranks> missing{};
  std::array<int, ranks> missing_again{};
  const auto run = [](tide::MeshShape mesh, int from, int to, auto& checkpoints, auto& lists, auto& counts) {
    tide::HostCluster cluster{mesh};
    cluster.run([&](tide::HostFabric& fabric) {
      const auto r = static_cast<std::size_t>(fabric.rank().value);
      train(fabric, from, to, checkpoints[r], lists[r], counts[r]);
    });
  };
  run({1, 4}, 0, steps, whole, losses, missing);
  run({2, 2}, 0, steps / 2, halves, again, missing_again);
  run({1, 4}, steps / 2, steps, halves, again, missing_again);  // from a checkpoint, and elsewhere
  std::printf("loss %.4f -> %.4f, experts without a token on a rank: %d\n", double(losses[0].front()),
              double(losses[0].back()), missing[0] + missing[1] + missing[2] + missing[3]);
  expect(losses[0].back() < 0.1F * losses[0].front(), "training helps");
  expect(missing[0] > 0, "some experts get no token");
  expect(losses == again, "half the steps over two nodes and half from a checkpoint are the same losses");
  expect(whole == halves, "and the same masters");
  expect(missing == missing_again, "and the same experts without a token");
  return tide_example::verdict();
}
