package org.apache.hadoop.fs;

import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
public class FSDataOutputStream extends DataOutputStream {
    public FSDataOutputStream(OutputStream out) {
        super(out);
    }

    public Abortable.AbortableResult abort() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void close() throws IOException {
        throw new UnsupportedOperationException();
    }
}
