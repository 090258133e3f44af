"""A server whose engine could not load a version tells load balancers and clients so, and recovers."""

import tiny

import bascule

PATIENCE = 600  # seconds, longer than anything healthy takes on a busy machine


def test_a_stopped_engine_is_not_healthy_and_its_requests_end_with_the_reason(serve, model, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint, "BASCULE_REQUEST_TIMEOUT": "1"})
    server.wait_until_up(PATIENCE)
    tensors = dict(model.named_parameters())
    with bascule.Sender(endpoint) as sender:
        sender.register_model({**tensors, "model.wrong": tensors["model.norm.weight"]})
        sender.wait_for_workers(1, PATIENCE)
        assert not sender.send().complete
        assert server.get("/health") == 503
        status, text = server.generate()
        assert status == 503 and "bascule" in text and "'wrong'" in text
    with bascule.Sender(endpoint) as sender:
        tiny.train(model, 1)
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        assert sender.send().complete
        assert server.get("/health") == 200
        assert server.generate() == (200, tiny.greedy(model))
