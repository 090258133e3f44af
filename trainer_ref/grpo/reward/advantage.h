// Advantages of GRPO: how much better a completion is than the others of its completion group.
#pragma once

#include <span>
#include <vector>

#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

// rewards r_1 … r_G of one completion group → A_i = (r_i − mean r) / (std r + 1e-4), or r_i − mean r without scaling
// (Dr. GRPO). std is the sample standard deviation (over G − 1), 0 for a group of one. DeepSeekMath, arXiv
// 2402.03300, 4.1.2.
std::vector<double> advantages(std::span<const double> rewards, bool scale);

// Whether all scored completions of the group have the same reward, before length penalties; also true if there are
// fewer than two of them.
bool is_flat(const CompletionGroup& group);

// Gives each completion its advantage by reward − penalty, compared with the other scored completions of its group. An
// unscored completion gets none, nor does the only scored one of its group. An advantage that its environment set
// stays.
void compute_advantages(std::span<CompletionGroup> groups, bool scale);

}  // namespace bascule::ref
