"""Engine processes shared by several gateway processes of the same host.

Python runs one thread at a time in a process. With `--gateways N` or `--engines N` each engine therefore has a process
of its own, and N gateway processes serve the sockets. A window travels like this:

1. A session in a gateway submits a window to its `EnginePool` (`cluster/engine_pool.py`), which looks like any other
   `tutti_server.engine.api.Transcriber`, and chooses an engine (`gateway_engines.py`).
2. The `LocalEngineLink` to that engine (`engine_link.py`) copies the audio into the gateway's `SharedAudioPool`
   (`shared_audio.py`), memory that all engine processes can read. The options and the place of the audio go over a
   Unix socket (`message_socket.py`) as a `Submit` message (`messages.py`).
3. The `EngineServer` (`engine_server.py`) in the engine process gives the window to the real engine and sends its
   events back, one message for each gateway and engine step.
4. The link passes the events to the session and frees the audio.

The `Supervisor` (`supervisor.py`) starts all processes and restarts those that die (`managed_process.py`);
`restart_policy.py` decides when. It talks to each of them over a pipe (`control_messages.py`, `process.py`); what the
processes do is in `roles.py`.

This package knows nothing of sessions and models.
"""
