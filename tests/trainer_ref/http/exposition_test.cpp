#include <bascule/trainer_ref/http/exposition.h>

#include <gmock/gmock.h>

#include <limits>

namespace bascule::ref {
namespace {

TEST(Exposition, IsTheFormatOfPrometheus) {
  Exposition page("bascule_train_");
  page.gauge("reward_mean", "Mean reward.", 0.25);
  page.counter("tokens_total", "Tokens generated.", std::int64_t{1} << 60);
  EXPECT_EQ(page.text(), R"(# HELP bascule_train_reward_mean Mean reward.
# TYPE bascule_train_reward_mean gauge
bascule_train_reward_mean 0.25
# HELP bascule_train_tokens_total Tokens generated.
# TYPE bascule_train_tokens_total counter
bascule_train_tokens_total 1152921504606846976
)");
}

TEST(Exposition, SamplesOfAFamilyAreToldApartByLabels) {
  Exposition page("");
  page.family("reward", "gauge", "Mean of each reward.");
  page.sample({{"name", "exec:a \"b\"\\\nc"}, {"kind", "program"}}, 1.0);
  page.sample({{"name", "x"}}, 1.0 / 3);
  EXPECT_EQ(page.text(), R"(# HELP reward Mean of each reward.
# TYPE reward gauge
reward{name="exec:a \"b\"\\\nc",kind="program"} 1
reward{name="x"} 0.3333333333333333
)");
}

TEST(Exposition, WhatIsNoNumberIsLeftOut) {
  Exposition page("");
  page.gauge("kl_nats", "Divergence.", std::numeric_limits<double>::quiet_NaN());
  page.gauge("norm", "Norm.", std::numeric_limits<double>::infinity());
  EXPECT_EQ(page.text(), R"(# HELP kl_nats Divergence.
# TYPE kl_nats gauge
# HELP norm Norm.
# TYPE norm gauge
norm +Inf
)");
}

}  // namespace
}  // namespace bascule::ref
