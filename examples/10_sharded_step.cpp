// SPDX-License-Identifier: Apache-2.0
//
// A whole training step: ShardedStep gathers each layer before its forward and again before its backward, reduces its
// gradients while the layer before is computed, and hands masters and reduced gradients to the optimizer.

#include "support/expect.hpp"

#include <tide/fabric/host_cluster.hpp>
#include <tide/pipeline/sharded_step.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

using tide::bf16;
using tide::index_t;
using tide_example::expect;

// y = out * (l3 o l2 o l1)(x), each layer x + tanh(weight x + bias), trained to turn a vector by a quarter.
constexpr index_t width = 6;
constexpr index_t layers = 3;
constexpr int steps = 150;

// snippet: step-parts
namespace net {
inline constexpr auto layer = tide::group(        //
    tide::param<bf16>("weight", {width, width}),  //
    tide::param<bf16>("bias", {width}));          //
inline constexpr auto output = tide::group(       //
    tide::param<bf16>("weight", {2, width}),      //
    tide::param<bf16>("temperature", {1}));       // not trained
}  // namespace net

using Mesh = tide::Mesh<1, 4>;
using Model = tide::Parts<tide::Part<"layers", tide::ShardLayout<net::layer, Mesh>, tide::Repeat<layers>>,
                          tide::Part<"output", tide::ShardLayout<net::output, Mesh>, tide::Frozen<"temperature">>>;
using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>>;
// end: step-parts

using Vector = std::array<float, width>;

// What one rank computes: activations of its sample, from layer to layer, and the gradient with respect to them.
struct Rank {
  std::array<Vector, layers + 1> x{};
  Vector d{};
  std::array<float, 2> error{};
  float loss = 0;

  Vector& at(index_t layer) { return x[static_cast<std::size_t>(layer)]; }
};

Vector layer_slope(const Vector& x, std::span<const bf16> weight, std::span<const bf16> bias, Vector& active) {
  Vector slope{};
  for (std::size_t i = 0; i < width; ++i) {
    float sum = float(bias[i]);
    for (std::size_t k = 0; k < width; ++k) sum += float(weight[i * width + k]) * x[k];
    active[i] = std::tanh(sum);
    slope[i] = 1 - active[i] * active[i];
  }
  return slope;
}

void layer_forward(const Vector& x, std::span<const bf16> weight, std::span<const bf16> bias, Vector& y) {
  layer_slope(x, weight, bias, y);
  for (std::size_t i = 0; i < width; ++i) y[i] += x[i];
}

void layer_backward(const Vector& x, std::span<const bf16> weight, std::span<const bf16> bias, Vector& d,
                    std::span<bf16> d_weight, std::span<bf16> d_bias) {
  Vector active{};
  const Vector slope = layer_slope(x, weight, bias, active);
  Vector before = d;
  for (std::size_t i = 0; i < width; ++i) {
    const float back = d[i] * slope[i];
    d_bias[i] = bf16(back);
    for (std::size_t k = 0; k < width; ++k) {
      d_weight[i * width + k] = bf16(back * x[k]);
      before[k] += back * float(weight[i * width + k]);
    }
  }
  d = before;
}

void start_sample(Rank& rank, index_t r, int step) {
  const float angle = static_cast<float>(7 * step + 3 * r);
  rank.x[0] = {std::cos(angle), std::sin(angle), 1, 0, 0, 0};
}

void output_forward(Rank& rank, std::span<const bf16> weight, float temperature) {
  const std::array<float, 2> wanted{-rank.x[0][1], rank.x[0][0]};
  rank.loss = 0;
  for (std::size_t o = 0; o < 2; ++o) {
    float sum = 0;
    for (std::size_t k = 0; k < width; ++k) sum += float(weight[o * width + k]) * rank.x[layers][k];
    rank.error[o] = sum * temperature - wanted[o];
    rank.loss += rank.error[o] * rank.error[o];
  }
}

void output_backward(Rank& rank, std::span<const bf16> weight, float temperature, std::span<bf16> d_weight) {
  rank.d = {};
  for (std::size_t o = 0; o < 2; ++o) {
    for (std::size_t k = 0; k < width; ++k) {
      d_weight[o * width + k] = bf16(2 * rank.error[o] * temperature * rank.x[layers][k]);
      rank.d[k] += 2 * rank.error[o] * temperature * float(weight[o * width + k]);
    }
  }
}

void train(tide::HostFabric& fabric, std::vector<float>& losses) {
  Step step{fabric};
  fabric.init();
  auto compute = fabric.stream();
  step.load(compute, [&](auto group) {
    compute.run([=, r = fabric.rank().value] {
      const auto masters = group.masters();
      for (std::size_t k = 0; float& w : masters.template get<"weight">()) {
        w = 0.3F * std::sin(static_cast<float>(37 * k++ + 11 * static_cast<std::size_t>(r + 5 * group.index())));
      }
      if constexpr (group.part() == "layers") {
        std::ranges::fill(masters.template get<"bias">(), 0.0F);
      } else {
        std::ranges::fill(masters.template get<"temperature">(), 0.5F);
      }
    });
  });

  Rank rank;
  // snippet: sharded-step
  for (int n = 0; n < steps; ++n) {
    compute.run([&, n] { start_sample(rank, fabric.rank().value, n); });
    for (index_t i = 0; i < layers; ++i) {
      auto layer = step.forward<"layers">(compute, i);  // the next one is gathered meanwhile
      compute.run([&rank, i, weight = layer.get<"weight">(), bias = layer.get<"bias">()] {
        layer_forward(rank.at(i), weight.elements(), bias.elements(), rank.at(i + 1));
      });
      layer.release();
    }
    auto output = step.forward<"output">(compute);
    compute.run([&, weight = output.get<"weight">(), temperature = output.get<"temperature">()] {
      output_forward(rank, weight.elements(), float(temperature(0)));
      losses.push_back(rank.loss);
    });
    output.release();

    auto output_back = step.backward<"output">(compute);
    compute.run([&rank, weight = output_back.get<"weight">(), temperature = output_back.get<"temperature">(),
                 d_weight = output_back.gradient<"weight">()] {
      output_backward(rank, weight.elements(), float(temperature(0)), d_weight.elements());
    });
    output_back.reduce();
    for (index_t i = layers; i-- > 0;) {
      auto layer = step.backward<"layers">(compute, i);
      compute.run([&rank, i, weight = layer.get<"weight">(), bias = layer.get<"bias">(),
                   d_weight = layer.gradient<"weight">(), d_bias = layer.gradient<"bias">()] {
        layer_backward(rank.at(i), weight.elements(), bias.elements(), rank.d, d_weight.elements(), d_bias.elements());
      });
      layer.reduce();  // goes on while the layer before is computed
    }

    step.update(compute, [&](auto group) {
      compute.run([=] {
        group.for_each([](const tide::Parameter&, std::span<float> masters, std::span<float> gradient) {
          for (std::size_t k = 0; k < masters.size(); ++k) masters[k] -= 0.1F * gradient[k];
        });
      });
    });
  }
  compute.synchronize();
  // end: sharded-step
}

int main() {
  tide::HostCluster cluster{{1, 4}};
  std::array<std::vector<float>, 4> losses;
  cluster.run([&](tide::HostFabric& fabric) { train(fabric, losses[static_cast<std::size_t>(fabric.rank().value)]); });
  float first = 0;
  float last = 0;
  for (const std::vector<float>& own : losses) {
    first += own.front();
    last += own.back();
  }
  std::printf("loss %.4f -> %.4f\n", double(first), double(last));
  expect(last < 0.05F * first, "training helps");
  return tide_example::verdict();
}
