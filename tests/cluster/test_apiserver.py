"""An API server as the command runs it."""

from podwire.cluster.apiserver import Options, running


async def test_a_server_on_all_addresses_comes_up_and_is_reached_at_the_loopback(tmp_path):
    options = Options(data_dir=tmp_path, host="0.0.0.0", port=0, store_url="memory://", controllers=False)
    async with running(options) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert server.kubeconfig.exists()
