// What bascule-train and bascule-engine know of each other: both share one config file and one environment.
#pragma once

#include <string>

#include <bascule/transport/program/flags.h>

namespace bascule::ref {

// Return what each program passes to parse_flags().
ProgramInfo train_program(std::string summary);
ProgramInfo engine_program(std::string summary);

}  // namespace bascule::ref
