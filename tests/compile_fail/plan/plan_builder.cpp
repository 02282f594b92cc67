// SPDX-License-Identifier: Apache-2.0
#include <tide/plan/plan_builder.hpp>

#if TIDE_CASE == 1  // expect: tide::PlanBuilder: the collective must outlive it
tide::PlanBuilder subject(tide::Collective{}, tide::Rank{0});
#elif TIDE_CASE == 2  // expect: tide::PlanBuilder: the collective must outlive it
const tide::Collective made();
tide::PlanBuilder subject(made(), tide::Rank{0});
#else                 // control: the same declaration, with a collective that stays
const tide::Collective collective{};
tide::PlanBuilder subject(collective, tide::Rank{0});
#endif
