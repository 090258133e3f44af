#include <bascule/schemes/auto/auto.h>

#include <utility>

#include <bascule/schemes/auto/receiver.h>
#include <bascule/schemes/auto/sender.h>
#include <bascule/schemes/relay/options.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

namespace {

// Returns null if no workers on other hosts are served.
absl::StatusOr<std::unique_ptr<SenderTransport>> of_other_hosts(const Scheme& scheme, const Endpoint& endpoint,
                                                                Epoch epoch) {
  if (!endpoint.listen) {
    for (const SchemeOption& option : scheme.options)
      if (option_value(endpoint, option.name) != nullptr)
        return invalid_argument("auto: ", option.name,
                                "= is for the broadcast to other hosts; leave it out, or add listen=host:port");
    return nullptr;
  }
  if (scheme.usable) BASCULE_TRY(annotate(scheme.usable(), cat("auto: listen= takes ", scheme.name)));
  return scheme.make_sender(endpoint, epoch);
}

}  // namespace

Scheme auto_scheme_on(AutoDependencies dependencies) {
  const auto shared = std::make_shared<const AutoDependencies>(std::move(dependencies));
  Scheme made{.name = "auto",
              .needs_descriptors = true,
              .on_device = shared->slots.on_device,
              .serves_hosts = true,
              .options = shared->slots.options,
              .over_tcp = std::shared_ptr<const Scheme>(shared, &shared->others),
              .usable = shared->slots.usable,
              .make_sender = {},
              .make_receiver = {}};
  made.options.insert(made.options.end(), shared->others.options.begin(), shared->others.options.end());
  if (!shared->slots.make_sender) return made;  // this build lacks it
  made.make_sender = [shared](const Endpoint& endpoint,
                              Epoch epoch) -> absl::StatusOr<std::unique_ptr<SenderTransport>> {
    Endpoint relayed = endpoint;
    if (relay::kShape.in(endpoint) == RelayShape::kOff)
      return invalid_argument("auto: engines on other GPUs hand versions on; expected relay=chain or ",
                              "relay=tree, found relay=off; leave it out, or use cuda-ipc");
    relayed.scheme_options.try_emplace(std::string(relay::kShape.name), "chain");
    BASCULE_ASSIGN(std::unique_ptr<SenderTransport> slots, shared->slots.make_sender(relayed, epoch));
    BASCULE_ASSIGN(std::unique_ptr<SenderTransport> others, of_other_hosts(shared->others, endpoint, epoch));
    return std::make_unique<AutoSender>(std::move(slots), std::move(others), shared->open_queue);
  };
  made.make_receiver = [shared](const Endpoint& endpoint) -> std::unique_ptr<ReceiverTransport> {
    if (!endpoint.looks_only && shared->reads_on_host(endpoint)) return std::make_unique<MirrorReader>();
    return shared->slots.make_receiver(endpoint);
  };
  return made;
}

}  // namespace bascule::inline v0
