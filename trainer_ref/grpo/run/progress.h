// A run's progress messages: one line per step, and how long the rest will take.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/grpo/run/metrics.h>

namespace bascule::ref {

// How fast steps follow one another, evaluations and checkpoints included.
class Pace {
 public:
  void begin(double elapsed_seconds) { ends_.assign(1, elapsed_seconds); }  // the run's time when its first step starts
  void step_ended(double elapsed_seconds);

  // Estimates the rest from the mean of the last 20 steps; NaN before the first step ends.
  double seconds_left(std::int64_t steps_left) const;

 private:
  std::deque<double> ends_;  // seconds since the run began
};

// "1,234,567"
std::string with_commas(double value);

// "12.3 s", "850 ms", "0.04 ms"
std::string precise(double seconds);

// "45 s", "12 min", "3 h 20 min".
std::string for_people(double seconds);

// Returns a step's line, with the remaining time if it is known.
std::string progress_line(const StepMetrics& metrics, std::int64_t last_step, double seconds_left);

// The line after the first step: where its time went, how fast tokens are made and trained, and when the run will end.
std::string first_step_line(const StepMetrics& metrics, std::int64_t last_step, double seconds_left);

// The line of a step of supervised training. `loss` is the mean over its tokens.
std::string supervised_line(std::int64_t step, std::int64_t last_step, double loss, double tokens_per_second,
                            double seconds_left);

// Returns a function to be called after each micro-batch of an update, which logs the progress every minute.
std::function<void(std::size_t done, std::size_t of)> progress_logger(std::function<void(std::string_view)> log);

}  // namespace bascule::ref
