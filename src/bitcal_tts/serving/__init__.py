"""The sidecar: between OpenAI clients and a server, stopping each generation when its answer is settled."""
