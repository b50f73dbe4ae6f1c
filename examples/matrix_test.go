package examples_test

import (
	"path/filepath"
	"testing"
)

// TestSDKMatrix runs every client of the matrix against a gateway, against one whose data folder the matrix takes away, and
// against the upstream of both. It needs what TestOpenAINode needs.
func TestSDKMatrix(t *testing.T) {
	if !installed(t, "sdk-matrix") {
		return
	}
	weir, output, upstream := build(t), new(lockedBuffer), ""
	freeAddresses(t, &upstream)
	start(t, output, nil, weir, "upstream-sim", "--listen", upstream)
	env := []string{"WEIR_UPSTREAM_URL=http://" + upstream, "WEIR_ADMIN_TOKEN=" + adminToken}
	gateway := func() (listen, admin, folder string) {
		freeAddresses(t, &listen, &admin)
		folder = filepath.Join(t.TempDir(), "data")
		ended := start(t, output, append(env, "WEIR_LISTEN="+listen, "WEIR_ADMIN="+admin, "WEIR_DATA="+folder),
			weir, "serve", "-c", filepath.Join("sdk-matrix", "weir.yaml"))
		if err := ready("http://"+listen+"/readyz", output, ended); err != nil {
			t.Fatal(err)
		}
		return listen, admin, folder
	}
	listen, admin, _ := gateway()
	outage, outageAdmin, folder := gateway()
	node(t, "sdk-matrix", "matrix.mjs", 385, output, append(env, "WEIR_BASE_URL=http://"+listen, "WEIR_KEY="+demoKey, "WEIR_ADMIN_URL=http://"+admin,
		"WEIR_OUTAGE_URL=http://"+outage, "WEIR_OUTAGE_ADMIN_URL=http://"+outageAdmin, "WEIR_OUTAGE_DATA="+folder)...)
}
