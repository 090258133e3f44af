#include <bascule/trainer_ref/program/pair.h>

#include <iterator>
#include <utility>

#include <bascule/trainer_ref/program/axolotl_config.h>
#include <bascule/trainer_ref/program/pair_flags.h>
#include <bascule/trainer_ref/program/sections.h>

namespace bascule::ref {
namespace {

Companion train() { return {.section = kTrainSection, .flags = {std::begin(kTrainFlags), std::end(kTrainFlags)}}; }
Companion engine() { return {.section = kEngineSection, .flags = {std::begin(kEngineFlags), std::end(kEngineFlags)}}; }

}  // namespace

ProgramInfo train_program(std::string summary) {
  return {.name = "bascule-train",
          .summary = std::move(summary),
          .section = kTrainSection,
          .companions = {engine()},
          .translate = from_axolotl};
}
ProgramInfo engine_program(std::string summary) {
  return {.name = "bascule-engine",
          .summary = std::move(summary),
          .section = kEngineSection,
          .companions = {train()},
          .translate = from_axolotl};
}

}  // namespace bascule::ref
