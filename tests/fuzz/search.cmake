# Fuzz targets that search, with clang's libFuzzer: the programs fuzz-NAME. Each links only what it needs, so that all of
# them build in minutes. bascule::bascule would need every part.
add_custom_target(fuzzers)

# fuzz_library(NAME [PART part] [SOURCES ...] [LINKS ...]): a part, or only some of its sources, as a static library.
# LINKS: what its objects need when they are linked. Linking the part itself would compile everything that it links.
function(fuzz_library name)
  cmake_parse_arguments(FUZZ "" "PART" "SOURCES;LINKS" ${ARGN})
  set(part bascule_${name})
  if(FUZZ_PART)
    set(part bascule_${FUZZ_PART})
  endif()
  if(NOT FUZZ_SOURCES)
    get_target_property(FUZZ_SOURCES ${part} SOURCES)
  endif()
  get_target_property(folder ${part} BASCULE_SOURCE_DIR)
  list(TRANSFORM FUZZ_SOURCES PREPEND ${folder}/)
  add_library(fuzz_${name} STATIC ${FUZZ_SOURCES})
  target_include_directories(fuzz_${name} PUBLIC $<TARGET_PROPERTY:${part},INCLUDE_DIRECTORIES>)
  target_link_libraries(fuzz_${name} PUBLIC ${FUZZ_LINKS} PRIVATE bascule_flags)
  if(NOT name STREQUAL "kernels")
    bascule_precompiled(fuzz_${name} core)
  endif()
endfunction()

function(fuzz_target name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(fuzz-${name} ${name}.cpp ${FUZZ_SOURCES})
  target_include_directories(fuzz-${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(fuzz-${name} PRIVATE ${FUZZ_LINKS} bascule_flags)
  target_link_options(fuzz-${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers fuzz-${name})
endfunction()

fuzz_library(kernels LINKS Threads::Threads)
fuzz_library(transport LINKS fuzz_kernels absl::status absl::statusor absl::strings absl::time OpenSSL::SSL uring)
fuzz_library(relay_messages PART relay SOURCES relay/messages.cpp LINKS fuzz_transport)
fuzz_library(nccl_messages PART nccl
  SOURCES nccl/environment.cpp nccl/library.cpp nccl/messages.cpp nccl/offer.cpp
  LINKS fuzz_transport ${CMAKE_DL_LIBS})
fuzz_library(rank_messages PART sender SOURCES ranks/messages.cpp LINKS fuzz_transport)
fuzz_library(memmap LINKS fuzz_transport)
fuzz_library(shm LINKS fuzz_transport)
get_target_property(fleet bascule_sender SOURCES)
list(FILTER fleet INCLUDE REGEX "^fleet/")
fuzz_library(fleet PART sender SOURCES ${fleet} report.cpp endpoint_lock.cpp LINKS fuzz_transport)
fuzz_library(receiver LINKS fuzz_transport)
target_sources(fuzz_receiver PRIVATE no_registry.cpp)
fuzz_library(program LINKS fuzz_transport absl::flags absl::flags_reflection ${BASCULE_YAML_LIBRARY})
fuzz_library(ref_json LINKS fuzz_transport)
fuzz_library(ref_files LINKS fuzz_ref_json fuzz_memmap)
fuzz_library(ref_text
  LINKS fuzz_ref_files absl::flat_hash_map ${BASCULE_PCRE2_LIBRARY} ${BASCULE_UTF8PROC_LIBRARY})
fuzz_library(ref_chat LINKS fuzz_ref_files ${BASCULE_UTF8PROC_LIBRARY})
fuzz_library(ref_http_wire LINKS fuzz_transport)
fuzz_library(ref_http LINKS fuzz_ref_http_wire)
fuzz_library(ref_http_client LINKS fuzz_ref_http_wire)
fuzz_library(ref_schedule PART ref_engine_schedule SOURCES adapters.cpp logit_adjustments.cpp LINKS fuzz_transport)
fuzz_library(ref_api PART ref_engine_http
  SOURCES api_key.cpp chat_messages.cpp fields.cpp generation_config.cpp model_card.cpp parse_chat.cpp
          parse_completion.cpp parse_tokenize.cpp request_fields.cpp sampling_fields.cpp stop_strings.cpp
  LINKS fuzz_ref_chat fuzz_ref_text fuzz_ref_schedule absl::str_format)
fuzz_library(ref_process SOURCES child_process.cpp line_process.cpp LINKS fuzz_transport)
fuzz_library(ref_reward LINKS fuzz_ref_http_client fuzz_ref_process)

# For scripts/fuzz: seeds that only our own code can make.
find_package(GTest REQUIRED)
add_executable(fuzz-seeds EXCLUDE_FROM_ALL seeds.cpp)
target_include_directories(fuzz-seeds PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(fuzz-seeds PRIVATE fuzz_memmap fuzz_relay_messages fuzz_nccl_messages fuzz_rank_messages GTest::gtest bascule_flags)
