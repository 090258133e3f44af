// The flags of bascule-engine, checked and resolved once.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/http_server.h>
#include <bascule/trainer_ref/engine/http/model_card.h>
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/tensor.h>

namespace bascule::ref {

struct EngineSettings {
  std::filesystem::path folder;  // of the checkpoint
  ModelConfig config;
  std::string sync;           // empty: the checkpoint's own weights are served
  bool serves_first = false;  // the checkpoint's weights until the first version of `sync`
  std::string base;           // empty, or the endpoint of a base with the checkpoint's weights
  std::string worker;
  std::vector<std::string> served_names;  // of the model; empty: by its folder
  c10::Device device = c10::kCPU;
  DType dtype = DType::kF32;
  std::string graphs;  // auto, on or off
  int threads = 1;
  std::int64_t max_model_len = 0, max_choices = 0;
  LogprobsMode logprobs = LogprobsMode::kRaw;
  RequestDefaults defaults;
  EngineOptions engine;
  HttpServerOptions server;
  struct NamedAdapter {
    std::string name, source;
  };
  std::vector<NamedAdapter> adapters;
  std::string adapter_folder;         // empty: none
  std::filesystem::path bridge_file;  // for trainers to find this engine; empty: none
  std::string active_adapter;         // of `adapters`, for requests that name the model itself; empty: none
  std::size_t max_adapters = 0;
  std::int64_t max_adapter_rank = 0;
};

// Opens the device. Errors concern flags: values that make no sense, or that this machine or model cannot meet.
absl::StatusOr<EngineSettings> settings_from_flags();

}  // namespace bascule::ref
